//go:build !linux

package health

import (
	"context"
	"net"
)

func listen(string) (net.Listener, error) { return nil, ErrUnsupported }

func dial(context.Context, string) (net.Conn, error) { return nil, ErrUnsupported }

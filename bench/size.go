//go:build linux

package main

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
)

// size builds the binary as it is released and weighs it.
func size(ctx context.Context, s *stage, _ options) ([]table, error) {
	t := table{ID: "size", Header: []string{"binary", "bytes", "MB", "MB in a compressed image layer"}}
	for _, target := range []string{"linux/amd64", "linux/arm64"} {
		system, arch, _ := strings.Cut(target, "/")
		program := s.program("size-" + arch)
		if err := buildStripped(ctx, "solojob", program, "GOOS="+system, "GOARCH="+arch); err != nil {
			return nil, err
		}
		plain, packed, err := weigh(program)
		if err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows, []string{target, fmt.Sprint(plain), megabytes(plain), megabytes(packed)})
	}
	return []table{t}, nil
}

// weigh is the size of a file, as it is and compressed.
func weigh(file string) (plain, packed int64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	var c counter
	z := gzip.NewWriter(&c)
	if plain, err = io.Copy(z, f); err != nil {
		return 0, 0, err
	}
	return plain, int64(c), z.Close()
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.2f", float64(bytes)/1e6) }

package ecs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
)

// vendor is a container's credential endpoint. It is an HTTP server because the
// SDK's own provider and cache are half of what is tested.
type vendor struct {
	server *httptest.Server
	mode   atomic.Value // "serve", "fail" or "hang"
	last   time.Duration
	asked  atomic.Int32
	served atomic.Int32
	ending chan struct{}
}

func newVendor(t *testing.T, validFor time.Duration) *vendor {
	v := &vendor{last: validFor, ending: make(chan struct{})}
	v.mode.Store("serve")
	v.server = httptest.NewServer(v)
	t.Cleanup(func() { close(v.ending); v.server.Close() })
	return v
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.asked.Add(1)
	switch v.mode.Load() {
	case "fail":
		w.WriteHeader(http.StatusBadRequest) // not tried again by the SDK
		fmt.Fprint(w, `{"code":"CredentialsUnavailable","message":"try later"}`)
		return
	case "hang":
		select {
		case <-v.ending:
		case <-r.Context().Done():
		}
		return
	}
	fmt.Fprintf(w, `{"RoleArn":"arn:aws:iam::111122223333:role/task","AccessKeyId":"AKIA%d","SecretAccessKey":"s","Token":"t","Expiration":%q}`,
		v.served.Add(1), time.Now().Add(v.last).UTC().Format(time.RFC3339))
}

// load finds credentials as solojob does.
func (v *vendor) load(t *testing.T) *keeper {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": v.server.URL, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "",
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_PROFILE": "", "AWS_WEB_IDENTITY_TOKEN_FILE": "",
		"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
	options := append(CredentialsOptions(), config.WithRegion("us-east-1"))
	cfg, err := config.LoadDefaultConfig(context.Background(), options...)
	if err != nil {
		t.Fatal(err)
	}
	k, ok := KeepCredentials(cfg.Credentials).(*keeper)
	if !ok {
		t.Fatal("these credentials are not kept")
	}
	return k
}

func key(t *testing.T, k *keeper) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := k.Retrieve(ctx)
	if err != nil {
		t.Fatalf("no credentials: %v", err)
	}
	return c.AccessKeyID
}

// When the container's credential endpoint fails or hangs, credentials that are
// still valid go on being used, without anybody waiting.
func TestValidCredentialsOutliveTheirEndpoint(t *testing.T) {
	for _, mode := range []string{"fail", "hang"} {
		t.Run(mode, func(t *testing.T) {
			v := newVendor(t, 4*time.Minute) // within the five minutes in which the SDK alone would give up
			k := v.load(t)
			if got := key(t, k); got != "AKIA1" {
				t.Fatalf("the key is %s", got)
			}
			v.mode.Store(mode)
			began := time.Now()
			for range 100 {
				if got := key(t, k); got != "AKIA1" {
					t.Fatalf("the key is %s", got)
				}
			}
			if took := time.Since(began); took > credentialsAttempt {
				t.Errorf("a hundred requests waited for %v", took)
			}
			until(t, "the endpoint has been asked again", func() bool { return v.asked.Load() >= 2 })
			until(t, "the attempt is over", func() bool { k.mu.Lock(); defer k.mu.Unlock(); return !k.busy })
			if got := key(t, k); got != "AKIA1" {
				t.Fatalf("after the failure the key is %s", got)
			}
		})
	}
}

// Credentials are replaced before their end, in the background.
func TestCredentialsAreReplacedEarly(t *testing.T) {
	v := newVendor(t, 4*time.Minute)
	k := v.load(t)
	key(t, k)
	v.last = time.Hour
	if got := key(t, k); got != "AKIA1" {
		t.Errorf("the key is %s: somebody waited for the new one", got)
	}
	until(t, "the new key is in use", func() bool { return key(t, k) == "AKIA2" })
	for range 10 {
		key(t, k)
	}
	if n := v.asked.Load(); n != 2 {
		t.Errorf("the endpoint was asked %d times", n)
	}
}

// One connection on which no reply comes does not hold up the next attempt: the
// SDK alone would wait for it for ever.
func TestHungRequestForCredentialsIsGivenUp(t *testing.T) {
	v := newVendor(t, time.Second) // too short to be kept
	k := v.load(t)
	key(t, k)
	v.mode.Store("hang")
	time.AfterFunc(credentialsAttempt/2, func() { v.mode.Store("serve") })
	until(t, "the endpoint's recovery is noticed", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		c, err := k.Retrieve(ctx)
		return err == nil && c.AccessKeyID != "AKIA1"
	})
}

// Credentials that have ended are not used any more.
func TestEndedCredentialsAreNotUsed(t *testing.T) {
	down := errors.New("down")
	source := &fakeSource{give: aws.Credentials{AccessKeyID: "a", SecretAccessKey: "b", CanExpire: true, Expires: time.Unix(1000, 0)}}
	now := time.Unix(100, 0)
	k := &keeper{source: source, now: func() time.Time { return now }}
	if _, err := k.Retrieve(context.Background()); err != nil {
		t.Fatal(err)
	}
	source.err = down
	now = time.Unix(995, 0)
	if _, err := k.Retrieve(context.Background()); !errors.Is(err, down) {
		t.Errorf("got %v", err)
	}
}

type fakeSource struct {
	give aws.Credentials
	err  error
}

func (s *fakeSource) Retrieve(context.Context) (aws.Credentials, error) { return s.give, s.err }
func (s *fakeSource) Invalidate()                                       {}

// The machine's own credential endpoint is asked directly, whatever proxy is set.
func TestCredentialEndpointIsAskedWithoutAProxy(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "http://169.254.170.2/v2/credentials/x", nil)
	t.Setenv("HTTP_PROXY", "http://"+net.JoinHostPort("192.0.2.1", "3128"))
	if u, err := proxyForHTTPS(r); u != nil || err != nil {
		t.Errorf("the proxy %v would be asked (%v)", u, err)
	}
}

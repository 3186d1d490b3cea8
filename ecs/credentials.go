package ecs

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
)

const (
	// credentialsEarly is how long before their end credentials are replaced:
	// as early as other SDKs begin to try, for a fault of some minutes to pass
	// unnoticed.
	credentialsEarly = 10 * time.Minute
	// credentialsRetry is the least time between two attempts to replace
	// credentials that are still valid.
	credentialsRetry = 15 * time.Second
	// credentialsAttempt bounds one request to the endpoint, which is on this
	// machine; the SDK makes three, and credentialsTimeout has room for them.
	credentialsAttempt = 3 * time.Second
	credentialsTimeout = 12 * time.Second
	// credentialsSlack is what is left of credentials that are used no more: a
	// request that is signed now has to arrive, by the service's clock.
	credentialsSlack = 10 * time.Second
)

// CredentialsOptions are what [config.LoadDefaultConfig] must be given for
// [KeepCredentials] to keep its promise. By default the SDK
//
//   - reports the end of a container's credentials five minutes early, and
//     throws them away then: if their endpoint is down in those minutes, valid
//     credentials are not used any more;
//   - waits for that endpoint without a limit, and lets everyone wait for the
//     same request: a single connection on which no reply comes would outlast
//     the credentials;
//   - asks a proxy from the environment for an address that only this machine
//     can reach.
func CredentialsOptions() []func(*config.LoadOptions) error {
	return []func(*config.LoadOptions) error{
		config.WithCredentialsCacheOptions(func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = 0 }),
		config.WithEndpointCredentialOptions(func(o *endpointcreds.Options) {
			o.HTTPClient = awshttp.NewBuildableClient().WithTimeout(credentialsAttempt).
				WithTransportOptions(func(t *http.Transport) { t.Proxy = proxyForHTTPS })
		}),
	}
}

// proxyForHTTPS is the proxy in the environment, for https alone: over http
// the SDK accepts no other credential endpoints than the machine's own.
func proxyForHTTPS(r *http.Request) (*url.URL, error) {
	if r.URL.Scheme == "http" {
		return nil, nil
	}
	return http.ProxyFromEnvironment(r)
}

// KeepCredentials returns a provider that goes on using valid credentials
// while their source fails or hangs: they are replaced some minutes before
// their end, in the background, and until that has worked, or they have ended,
// nobody waits for it. Without valid credentials it asks the source and waits
// for as long as the context allows. Static credentials are passed through.
//
// The provider must be the one that [config.LoadDefaultConfig] returned, with
// [CredentialsOptions].
func KeepCredentials(from aws.CredentialsProvider) aws.CredentialsProvider {
	cache, ok := from.(*aws.CredentialsCache)
	if !ok {
		return from
	}
	return &keeper{source: cache, now: time.Now}
}

// credentialsSource is a [*aws.CredentialsCache].
type credentialsSource interface {
	aws.CredentialsProvider
	Invalidate()
}

type keeper struct {
	source credentialsSource
	now    func() time.Time

	mu      sync.Mutex
	current aws.Credentials
	busy    bool      // an attempt to replace them goes on
	tried   time.Time // when the last one began
}

// Retrieve returns valid credentials at once where there are some.
func (k *keeper) Retrieve(ctx context.Context) (aws.Credentials, error) {
	k.mu.Lock()
	current := k.current
	valid := current.HasKeys() && (!current.CanExpire || k.left() > credentialsSlack)
	if valid && current.CanExpire && k.left() < credentialsEarly && !k.busy && k.now().Sub(k.tried) >= credentialsRetry {
		k.busy, k.tried = true, k.now()
		go k.replace()
	}
	k.mu.Unlock()
	if valid {
		return current, nil
	}
	return k.fetch(ctx)
}

// left is how long the credentials are still valid; k.mu is held.
func (k *keeper) left() time.Duration { return k.current.Expires.Sub(k.now()) }

// replace fetches new credentials beside everything else. It ends in time by
// itself.
func (k *keeper) replace() {
	ctx, cancel := context.WithTimeout(context.Background(), credentialsTimeout)
	defer cancel()
	k.source.Invalidate() // it would return what it has
	_, _ = k.fetch(ctx)   // what is in use stays in use
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy = false
}

// fetch asks the source, and keeps what it gives unless it ends earlier than
// what there is.
func (k *keeper) fetch(ctx context.Context) (aws.Credentials, error) {
	fresh, err := k.source.Retrieve(ctx)
	if err != nil {
		return aws.Credentials{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.current.HasKeys() || !fresh.CanExpire || fresh.Expires.After(k.current.Expires) {
		k.current = fresh
	}
	return fresh, nil
}

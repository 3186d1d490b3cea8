// Package dynamo speaks to DynamoDB: every request that solojob sends there,
// and every item that it reads or writes, is in this package.
package dynamo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/logging"

	"solojob/ecs"
)

const (
	// dialTimeout is short because an attempt is: a peer that does not answer a
	// SYN within it is better asked again than waited for.
	dialTimeout = time.Second
	// credentialsTimeout bounds the search for credentials at start. The
	// metadata services on the way answer within milliseconds where they exist.
	credentialsTimeout = 10 * time.Second
)

// SetupError is a fault of the environment that no retry can mend, in a
// sentence that says what to set.
type SetupError struct{ Sentence string }

func (e *SetupError) Error() string { return e.Sentence }

// Client is a connection pool to DynamoDB for leases alone: nothing else waits
// in it, and nothing else's fault closes its connections.
type Client struct {
	api       *dynamodb.Client
	transport *http.Transport
	other     *dynamodb.Client // for everything that is not the lease, with a pool of its own
	region    string
	endpoint  string // set explicitly, or ""
}

// ConnectLocal is for a store on this machine that looks at no credentials. It
// reads nothing of the AWS configuration in the environment.
func ConnectLocal(ctx context.Context, endpoint string) (*Client, error) {
	return Connect(ctx,
		config.WithSharedConfigFiles(nil), config.WithSharedCredentialsFiles(nil),
		config.WithRegion("local"), config.WithBaseEndpoint(endpoint),
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("local", "local", "")))
}

// Connect finds region, credentials and endpoint as every AWS program does, and
// checks that they are there. It sends nothing to DynamoDB. The options
// are applied to the configuration. A fault is a *[SetupError].
func Connect(ctx context.Context, options ...func(*config.LoadOptions) error) (*Client, error) {
	options = slices.Concat(ecs.CredentialsOptions(), []func(*config.LoadOptions) error{
		config.WithHTTPClient(awshttp.NewBuildableClient()),
		// The SDK's own log goes to stderr, in lines that are no JSON, and waits
		// for whoever reads it: that must not hold up a heartbeat.
		config.WithLogger(logging.Nop{}),
	}, options)
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, &SetupError{fmt.Sprintf("the AWS configuration can't be read: %v", err)}
	}
	c := &Client{region: cfg.Region}
	if cfg.Region == "" {
		return nil, &SetupError{"no AWS region: set AWS_REGION (for example AWS_REGION=eu-central-1)"}
	}
	if cfg.Credentials == nil {
		return nil, noCredentials(nil)
	}
	cfg.Credentials = ecs.KeepCredentials(cfg.Credentials)
	found, cancel := context.WithTimeout(ctx, credentialsTimeout)
	defer cancel()
	if _, err := cfg.Credentials.Retrieve(found); err != nil {
		return nil, noCredentials(err)
	}
	c.transport = leaseTransport(cfg.HTTPClient)
	c.api = dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
		// Each attempt has to be known to the elector, which retries by itself.
		o.Retryer = aws.NopRetryer{}
		o.HTTPClient = &http.Client{Transport: c.transport}
		if o.BaseEndpoint != nil {
			c.endpoint = *o.BaseEndpoint
		}
	})
	c.other = dynamodb.NewFromConfig(cfg)
	if c.endpoint != "" {
		u, err := url.Parse(c.endpoint)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, &SetupError{fmt.Sprintf("the DynamoDB endpoint %q is not a URL like http://127.0.0.1:8000: correct AWS_ENDPOINT_URL_DYNAMODB (or AWS_ENDPOINT_URL), or unset it for AWS's own", c.endpoint)}
		}
	}
	return c, nil
}

func noCredentials(err error) *SetupError {
	s := "no AWS credentials: give the task a task role (taskRoleArn), or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
	if err != nil {
		s += fmt.Sprintf(" (%v)", rootCause(err))
	}
	return &SetupError{s}
}

// rootCause is the innermost error: the outer ones of the SDK only name its own
// layers.
func rootCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// leaseTransport is a transport of its own with the settings (such as
// AWS_CA_BUNDLE) that the configuration put into the shared one.
func leaseTransport(shared aws.HTTPClient) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	if b, ok := shared.(*awshttp.BuildableClient); ok {
		t = b.GetTransport()
	}
	t.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	t.TLSHandshakeTimeout = 2 * dialTimeout
	t.MaxIdleConnsPerHost = 2
	// In HTTP/1 a request that is given up takes its connection with it, so the
	// next attempt has a fresh one; an HTTP/2 connection would hang on.
	t.ForceAttemptHTTP2 = false
	t.TLSNextProto = nil
	return t
}

// ForJobs is a client for writes that are a job's own, with the SDK's retries.
func (c *Client) ForJobs() *dynamodb.Client { return c.other }

// Close closes the idle connections.
func (c *Client) Close() {
	c.transport.CloseIdleConnections()
	if p, ok := c.other.Options().HTTPClient.(interface{ CloseIdleConnections() }); ok {
		p.CloseIdleConnections()
	}
}

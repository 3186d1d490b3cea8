package main

import (
	"context"
	"log/slog"
	"os"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"solojob/config"
	"solojob/devstore"
	"solojob/dynamo"
	"solojob/ecs"
)

// whereabouts are what a process learns about where it runs: its store, its
// name, and on ECS its task.
type whereabouts struct {
	store    *dynamo.Store
	name     string        // the task's id on ECS, elsewhere the host's name
	revision string        // of the code, "" if unknown
	task     *ecs.Metadata // nil outside ECS
	close    func()
}

// whereabouts finds out. It returns nil, and no error, if it was told to stop
// meanwhile.
func (r *run) whereabouts(cfg *config.Config, log *slog.Logger) (*whereabouts, error) {
	ctx, cancel := context.WithCancel(context.Background())
	type result struct {
		here *whereabouts
		err  error
	}
	found := make(chan result, 1)
	go func() { // the search for credentials may take a while
		here, err := lookAround(ctx, cfg, r.local, log)
		found <- result{here, err}
	}()
	select {
	case f := <-found:
		if f.err != nil {
			cancel()
			return nil, &exit{exitConfig, f.err}
		}
		closeStore := f.here.close
		f.here.close = func() { closeStore(); cancel() }
		return f.here, nil
	case <-r.caught.Stop:
		cancel()
		if f := <-found; f.here != nil {
			f.here.close()
		}
		return nil, nil
	}
}

func lookAround(ctx context.Context, cfg *config.Config, local bool, log *slog.Logger) (*whereabouts, error) {
	here := &whereabouts{name: hostName(), revision: cfg.Revision}
	if local {
		return here, here.openLocal(ctx, cfg)
	}
	var options []func(*awsconfig.LoadOptions) error
	if ecs.On(os.Environ()) {
		task, err := ecs.Detect(ctx, os.Environ())
		if err != nil {
			log.Warn("task unknown: going by the host's name", "error", err.Error())
		}
		here.adopt(task)
		options = regionOf(task)
	}
	client, err := dynamo.Connect(ctx, options...)
	if err != nil {
		return nil, err
	}
	here.store, here.close = client.Lease(cfg.Table, cfg.Lease, leaseItem(cfg)), client.Close
	return here, nil
}

// adopt takes over what ECS says of the task.
func (h *whereabouts) adopt(task *ecs.Metadata) {
	if h.task = task; task == nil {
		return
	}
	if task.TaskID != "" {
		h.name = task.TaskID
	}
	if h.revision == "" {
		h.revision = task.Revision
	}
}

// regionOf is the region of the task, for where the environment names none.
func regionOf(task *ecs.Metadata) []func(*awsconfig.LoadOptions) error {
	if task == nil || task.Region == "" {
		return nil
	}
	return []func(*awsconfig.LoadOptions) error{awsconfig.WithDefaultRegion(task.Region)}
}

// openLocal opens a private store in this process.
func (h *whereabouts) openLocal(ctx context.Context, cfg *config.Config) error {
	s, err := devstore.Start(ctx, devstore.Options{Table: cfg.Table})
	if err != nil {
		return err
	}
	client, err := dynamo.ConnectLocal(ctx, s.URL())
	if err != nil {
		s.Close()
		return err
	}
	h.store = client.Lease(cfg.Table, cfg.Lease, leaseItem(cfg))
	h.close = func() { client.Close(); s.Close() }
	return nil
}

// announce is the log's first line.
func (h *whereabouts) announce(log *slog.Logger, cfg *config.Config) {
	attrs := []any{"version", version(), "mode", cfg.Mode}
	if h.revision != "" {
		attrs = append(attrs, "revision", h.revision)
	}
	if h.task != nil {
		attrs = append(attrs, "cluster", h.task.Cluster, "service", h.task.Service, "family", h.task.Family)
	}
	log.Info("starting", attrs...)
}

// leaseItem is which of a name's two leases is competed for: a step before a
// service must not wait for the service.
func leaseItem(cfg *config.Config) string {
	if cfg.Mode == config.ModeOnce {
		return dynamo.OnceItem
	}
	return dynamo.LeaseItem
}

// hostName is how people find this process outside ECS.
func hostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "unknown-host"
	}
	return name
}

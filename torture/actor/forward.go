//go:build linux

package main

import (
	"io"
	"net"
	"os"
)

// listenerFD is where the torture leaves the listener: it stays open while no
// forwarder serves it, which is what a host in trouble looks like.
const listenerFD = 3

func forward(socket string) {
	listener, err := net.FileListener(os.NewFile(listenerFD, "listener"))
	if err != nil {
		fail("no listener: %v", err)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			fail("the listener fails: %v", err)
		}
		go carry(conn.(*net.TCPConn), socket)
	}
}

// carry passes bytes in both directions until either side ends. The end of the
// store's side reaches the task as a reset.
func carry(task *net.TCPConn, socket string) {
	defer task.Close()
	_ = task.SetLinger(0)
	store, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer store.Close()
	go func() {
		_, _ = io.Copy(store, task)
		store.Close() // ends the copy below
	}()
	_, _ = io.Copy(task, store)
}

//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: the numbers are about Linux, with /proc and CLOCK_BOOTTIME: run it there")
	os.Exit(1)
}

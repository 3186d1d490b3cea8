//go:build linux

package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// sample is a set of times that were measured.
type sample []time.Duration

// quantile is the smallest value that at least the fraction q of the sample
// does not exceed (the nearest rank: never a value that was not measured). Of
// nothing it is 0.
func (s sample) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// statsHeader is the header of a table of samples.
var statsHeader = []string{"from → to", "n", "median", "p99", "max"}

// row is a sample as a row of such a table.
func (s sample) row(what string) []string {
	if len(s) == 0 {
		return []string{what, "0", "–", "–", "–"}
	}
	return []string{what, fmt.Sprint(len(s)), span(s.quantile(0.5)), span(s.quantile(0.99)), span(s.quantile(1))}
}

// span writes a time with three digits that say something.
func span(d time.Duration) string {
	switch a := d.Abs(); {
	case a >= 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case a >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case a >= 100*time.Millisecond:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
	case a >= 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	default:
		return fmt.Sprintf("%.2f ms", d.Seconds()*1e3)
	}
}

// Package precedence puts tests of real processes before the tests of other
// packages, which run beside them with all the cores there are.
package precedence

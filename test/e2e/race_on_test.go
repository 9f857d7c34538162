//go:build race

package e2e

// raceDetector makes long runs shorter: everything takes five to ten times as long under it.
const raceDetector = true

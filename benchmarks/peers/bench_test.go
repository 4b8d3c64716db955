package peers

import (
	"testing"

	"github.com/ringfence-go/ringfence/benchmarks"
)

func all() []benchmarks.Implementation { return append(benchmarks.Ours(), Peers()...) }

func BenchmarkDecision(b *testing.B) { benchmarks.Decisions(b, all()) }
func BenchmarkLatency(b *testing.B)  { benchmarks.Latency(b, all()) }
func BenchmarkMemory(b *testing.B)   { benchmarks.Memory(b, all()) }
func BenchmarkAccuracy(b *testing.B) { benchmarks.Accuracy(b, all()) }

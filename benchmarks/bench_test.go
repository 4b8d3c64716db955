package benchmarks

import "testing"

func BenchmarkDecision(b *testing.B) { Decisions(b, Ours()) }
func BenchmarkLatency(b *testing.B)  { Latency(b, Ours()) }
func BenchmarkMemory(b *testing.B)   { Memory(b, Ours()) }
func BenchmarkAccuracy(b *testing.B) { Accuracy(b, Ours()) }

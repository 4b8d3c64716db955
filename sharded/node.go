package sharded

import (
	"reflect"
	"sync/atomic"
	"unsafe"
)

// nodes makes the nodes of a map: a key and its value in one allocation. The map holds pointers to the values, and finds
// the keys in front of them.
//
//	                      v
//	+-----------+---------+---------+
//	|   bytes   |  length |  value  |   K is a string type, and the key has longText bytes or more
//	+-----------+---------+---------+
//	|   bytes             |  value  |   K is a string type, and the key is shorter: its length is in the hash
//	+---------------------+---------+
//	|   key               |  value  |   any other K
//	+---------------------+---------+
//
// The bytes end where the next part begins. A node of a string has no pointers, so that the garbage collector has one object
// to find for a key and its value, and nothing to follow.
type nodes[K comparable, V any] struct {
	isString bool         // K is a string type
	words    int          // a value's
	layout   reflect.Type // a node, if K is no string type
	offset   uintptr      // the value's in it
}

const (
	wordSize = 8
	maxSize  = 1 << 30 // of a value

	// The hash of a string has the length in lengthBits bits from lengthShift on, longText for all that are not shorter:
	// above what xsync takes for a bucket, below what is taken for a shard.
	lengthShift = 44
	lengthBits  = 8
	longText    = 1<<lengthBits - 1
	lengthMask  = uint64(longText) << lengthShift
)

func newNodes[K comparable, V any](size uintptr) (n nodes[K, V]) {
	key := reflect.TypeFor[K]()
	n.isString = key.Kind() == reflect.String
	n.words = int(max(size, unsafe.Sizeof(*new(V)), 1)+wordSize-1) / wordSize
	if !n.isString {
		n.layout = reflect.StructOf([]reflect.StructField{
			{Name: "Key", Type: key},
			{Name: "Value", Type: reflect.ArrayOf(n.words, reflect.TypeFor[atomic.Uint64]())},
		})
		n.offset = n.layout.Field(1).Offset
	}
	return n
}

// hash returns hash with what the nodes have to know about key in it.
func (n *nodes[K, V]) hash(hash uint64, key K) uint64 {
	if !n.isString {
		return hash
	}
	length := len(*(*string)(unsafe.Pointer(&key)))
	return hash&^lengthMask | uint64(min(length, longText))<<lengthShift
}

// make returns the value, all zero, of a new node for key.
func (n *nodes[K, V]) make(key K) *V {
	if !n.isString {
		node := reflect.New(n.layout).UnsafePointer()
		*(*K)(node) = key
		return (*V)(unsafe.Add(node, n.offset))
	}
	text := *(*string)(unsafe.Pointer(&key))
	value := (len(text) + wordSize - 1) / wordSize
	if len(text) >= longText {
		value++
	}
	words := make([]atomic.Uint64, value+n.words) // aligned to 8 bytes on 32-bit machines too
	v := unsafe.Pointer(&words[value])
	end := v
	if len(text) >= longText {
		end = unsafe.Add(v, -wordSize)
		*(*int)(end) = len(text)
	}
	copy(unsafe.Slice((*byte)(unsafe.Add(end, -len(text))), len(text)), text)
	return (*V)(v)
}

// key returns the key of v, which has that hash. A string shares its bytes with the node, which nobody writes to.
func (n *nodes[K, V]) key(hash uint64, v *V) K {
	if !n.isString {
		return *(*K)(unsafe.Add(unsafe.Pointer(v), -n.offset))
	}
	text := textOf(hash, unsafe.Pointer(v))
	return *(*K)(unsafe.Pointer(&text))
}

// has reports whether key is the key of v. Both have that hash.
func (n *nodes[K, V]) has(hash uint64, v *V, key K) bool {
	if !n.isString {
		return *(*K)(unsafe.Add(unsafe.Pointer(v), -n.offset)) == key
	}
	return textOf(hash, unsafe.Pointer(v)) == *(*string)(unsafe.Pointer(&key))
}

// textOf returns the string in front of the value v, which has that hash.
func textOf(hash uint64, v unsafe.Pointer) string {
	length := int(hash & lengthMask >> lengthShift)
	if length == longText {
		v = unsafe.Add(v, -wordSize)
		length = *(*int)(v)
	}
	return unsafe.String((*byte)(unsafe.Add(v, -length)), length)
}

// isPlain reports whether a type has no pointers in it.
func isPlain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return t.Len() == 0 || isPlain(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !isPlain(t.Field(i).Type) {
				return false
			}
		}
		return true
	default:
		return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Complex128
	}
}

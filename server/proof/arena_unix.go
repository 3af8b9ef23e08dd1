//go:build unix

package proof

import "golang.org/x/sys/unix"

// reserve returns zeroed memory outside of the heap. The system provides each page when it is first written.
func reserve(bytes int) ([]byte, error) {
	return unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

// giveUp returns the memory of reserve to the system. Nothing may refer to it any more.
func giveUp(mem []byte) { _ = unix.Munmap(mem) } // it fails only for memory that Mmap did not return

//! The reserved range of address space an arena hands out, and its return to the operating system.
//!
//! Untouched and returned parts read as zero: the item layer relies on it (a zero reference count means "not
//! published"). Nothing here knows slabs. Under Miri, which knows no `mmap` of this kind, a small heap block stands in.

use std::io;
use std::ptr::NonNull;

/// A range of zeroed, lazily backed memory.
pub(super) struct Region {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a region is a plain range of memory that it owns; all access goes through raw pointers whose users
// establish their own exclusion.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Smaller than this is no use.
#[cfg(not(miri))]
const BYTES_MIN: usize = 64 << 20;

impl Region {
    /// Reserves up to `bytes_max`, halving while the operating system refuses.
    #[cfg(not(miri))]
    pub(super) fn reserve(bytes_max: usize) -> io::Result<Self> {
        let mut bytes = bytes_max.max(BYTES_MIN);
        loop {
            match Self::map(bytes) {
                Err(_) if bytes / 2 >= BYTES_MIN => bytes /= 2,
                result => return result,
            }
        }
    }

    #[cfg(not(miri))]
    fn map(bytes: usize) -> io::Result<Self> {
        // One mapping for good, readable and writable: splitting it by protection would cost a kernel mapping per
        // slab, and their number is limited. NORESERVE keeps it out of the commit charge.
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Huge pages would keep returned slabs resident. Only a hint: kernels without them refuse it.
        // SAFETY: the range was just mapped.
        unsafe { libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE) };
        let base =
            NonNull::new(base.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
        Ok(Self { base, bytes })
    }

    /// A stand-in on the heap.
    #[cfg(miri)]
    pub(super) fn reserve(bytes_max: usize) -> io::Result<Self> {
        let bytes = bytes_max.min(Self::MIRI_BYTES);
        // SAFETY: the layout is not empty.
        let base = unsafe { std::alloc::alloc_zeroed(Self::miri_layout(bytes)) };
        let base = NonNull::new(base).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { base, bytes })
    }

    #[cfg(miri)]
    const MIRI_BYTES: usize = 4 << 20;

    #[cfg(miri)]
    fn miri_layout(bytes: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(bytes, 4096).expect("a small power of two")
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address at `offset`; dereferencing it is up to the owner of that part of the range.
    #[inline]
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        self.base.as_ptr().wrapping_add(offset)
    }

    /// Gives the pages behind `offset..offset + bytes` back; they read as zero afterwards.
    ///
    /// # Safety
    /// The caller owns that part of the range, nobody reads or writes it meanwhile; both numbers are multiples of
    /// the chunk size.
    pub(super) unsafe fn discard(&self, offset: usize, bytes: usize) {
        debug_assert!(offset + bytes <= self.bytes);
        let start = self.at(offset);
        #[cfg(not(miri))]
        {
            // SAFETY: within the mapping, owned by the caller, page-aligned.
            let failed = unsafe { libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED) } != 0;
            if !failed {
                return;
            }
        }
        // Locked pages cannot be given back, but the promise of zeroes stands.
        // SAFETY: the caller owns these bytes.
        unsafe { start.write_bytes(0, bytes) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        #[cfg(not(miri))]
        // SAFETY: the mapping was made by `map` with this length and nobody uses it any more.
        unsafe {
            libc::munmap(self.base.as_ptr().cast(), self.bytes);
        }
        #[cfg(miri)]
        // SAFETY: allocated in `reserve` with the same layout.
        unsafe {
            std::alloc::dealloc(self.base.as_ptr(), Self::miri_layout(self.bytes));
        }
    }
}

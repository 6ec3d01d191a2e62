//! Locks whose data stays good when a thread panics.
//!
//! std marks a lock as poisoned when its holder panics, and every later `lock()` fails. Here a panic ends one request
//! or one task while the server goes on, and no critical section leaves its data half-changed when it unwinds: so the
//! mark is passed over, in this one place. A section that cannot promise that must not use these.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Takes a [`Mutex`] whether or not a holder panicked.
pub trait MutexExt<T: ?Sized> {
    fn lock_ignoring_poison(&self) -> MutexGuard<'_, T>;
}

/// Takes a [`RwLock`] whether or not a holder panicked.
pub trait RwLockExt<T: ?Sized> {
    fn read_ignoring_poison(&self) -> RwLockReadGuard<'_, T>;
    fn write_ignoring_poison(&self) -> RwLockWriteGuard<'_, T>;
}

impl<T: ?Sized> MutexExt<T> for Mutex<T> {
    #[inline]
    fn lock_ignoring_poison(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> RwLockExt<T> for RwLock<T> {
    #[inline]
    fn read_ignoring_poison(&self) -> RwLockReadGuard<'_, T> {
        self.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn write_ignoring_poison(&self) -> RwLockWriteGuard<'_, T> {
        self.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_lock_outlives_the_panic_of_its_holder() {
        let (mutex, shared) = (Mutex::new(1), RwLock::new(2));
        thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _guards = (mutex.lock_ignoring_poison(), shared.write_ignoring_poison());
                panic!("as it should");
            });
            assert!(panics.join().is_err());
        });
        assert!(mutex.is_poisoned() && shared.is_poisoned());
        assert_eq!(*mutex.lock_ignoring_poison(), 1);
        assert_eq!(*shared.read_ignoring_poison(), 2);
        *shared.write_ignoring_poison() = 3;
    }
}

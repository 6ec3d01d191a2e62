//! Things that know their place, so that each can be removed without looking for it.

/// All of them; as many places as there were at once.
pub(crate) struct Slots<T> {
    all: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    /// Adds the first of what `make` makes for a place; the caller has the second.
    pub(crate) fn add<U>(&mut self, make: impl FnOnce(usize) -> (T, U)) -> U {
        let place = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        let (kept, given) = make(place);
        self.all[place] = Some(kept);
        given
    }

    pub(crate) fn remove(&mut self, place: usize) {
        if let Some(slot) = self.all.get_mut(place)
            && slot.take().is_some()
        {
            self.free.push(place);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.all.iter().flatten()
    }
}

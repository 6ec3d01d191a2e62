//! Scheduling: which of the queued releases are worked on next.
//!
//! There are three queues, so that quick releases never wait behind slow ones: static sites, releases
//! whose image exists and only has to run, and those that need a build. Within each, slots go round-robin
//! over owners: the owner with the fewest in progress is next, then the least recently served. So what one
//! owner queues, however much, delays another by one release.
//!
//! A build whose worker crashed or whose engine went away waits for a build slot like any other: otherwise it and the
//! builds that took its slot meanwhile would exceed [`MAX_BUILDS`]. It goes before those that were not begun, because
//! its deadline runs.

use super::build_slots::MAX_BUILDS;
use estrade_model::{OwnerId, ReleaseId};
use estrade_store::release_queue::{ClaimableRow, ReleaseQueue};
use std::collections::{HashMap, HashSet};

/// How many static releases one server works on at once.
pub(super) const MAX_STATIC: usize = 16;
/// How many releases it puts in place at once, besides those that it builds.
pub(super) const MAX_DEPLOYS: usize = 16;
/// Most of either that belong to one owner: another one never waits for the slowest of them.
pub(super) const MAX_PER_OWNER: usize = 12;
/// Most builds of one owner: a build may take a quarter of an hour, and another owner's does not wait for it.
const MAX_BUILDS_PER_OWNER: usize = MAX_BUILDS - 1;
/// Most owners that are remembered for having been served.
const MAX_OWNERS: usize = 4096;
/// Most releases that are remembered for needing a build.
const MAX_NOTED: usize = 4096;

/// When owners were last served, and which releases need a build.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    served: HashMap<OwnerId, u64>,
    turn: u64,
    /// Releases whose image is not on the engine any more. Only a hint: found out again when it is lost.
    to_build: HashSet<ReleaseId>,
}

/// What is in work, and how much more may be.
#[derive(Debug, Default)]
pub(super) struct Load {
    pub(super) room: HashMap<ReleaseQueue, usize>,
    pub(super) active: HashMap<(ReleaseQueue, OwnerId), usize>,
    /// Most that one owner may have in work of each.
    pub(super) per_owner: usize,
}

impl Load {
    pub(super) fn has_room(&self, queue: ReleaseQueue) -> bool {
        self.room.get(&queue).is_some_and(|room| *room > 0)
    }

    fn add(&mut self, queue: ReleaseQueue, owner: OwnerId) {
        if let Some(room) = self.room.get_mut(&queue) {
            *room = room.saturating_sub(1);
        }
        *self.active.entry((queue, owner)).or_default() += 1;
    }

    fn active(&self, queue: ReleaseQueue, owner: OwnerId) -> usize {
        self.active.get(&(queue, owner)).copied().unwrap_or(0)
    }
}

impl Schedule {
    /// Notes that a release needs a build, although it did not look like it.
    pub(super) fn note_build(&mut self, release: ReleaseId) {
        if self.to_build.len() >= MAX_NOTED {
            // Those that were canceled are never picked; the others are noted again.
            self.to_build.clear();
        }
        self.to_build.insert(release);
    }

    /// Chooses what to work on next. `waiting` has the releases of each owner in their order.
    pub(super) fn pick(
        &mut self,
        waiting: Vec<ClaimableRow>,
        mut load: Load,
    ) -> Vec<(ClaimableRow, ReleaseQueue)> {
        let mut picked = Vec::new();
        let mut queues: HashMap<ReleaseQueue, Vec<ClaimableRow>> = HashMap::new();
        for row in waiting {
            queues.entry(self.queue_of(&row)).or_default().push(row);
        }
        for (queue, mut rows) in queues {
            while load.has_room(queue) {
                let Some(next) = self.next_of(queue, &rows, &load) else {
                    break;
                };
                let row = rows.remove(next);
                load.add(queue, row.owner);
                self.serve(row.owner);
                picked.push((row, queue));
            }
        }
        for (row, _) in &picked {
            self.to_build.remove(&row.id);
        }
        picked
    }

    fn queue_of(&self, row: &ClaimableRow) -> ReleaseQueue {
        if self.to_build.contains(&row.id) {
            ReleaseQueue::Build
        } else {
            row.queue
        }
    }

    /// The index of the next release: one whose build was interrupted, else the first of the next owner.
    fn next_of(&self, queue: ReleaseQueue, rows: &[ClaimableRow], load: &Load) -> Option<usize> {
        let max = match queue {
            ReleaseQueue::Build => load.per_owner.min(MAX_BUILDS_PER_OWNER),
            _ => load.per_owner,
        };
        let may = |row: &ClaimableRow| load.active(queue, row.owner) < max;
        let key = |row: &ClaimableRow| {
            let served = self.served.get(&row.owner).copied().unwrap_or(0);
            (!row.building, load.active(queue, row.owner), served)
        };
        let (at, _) = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| may(row))
            .min_by_key(|(at, row)| (key(row), *at))?;
        Some(at)
    }

    fn serve(&mut self, owner: OwnerId) {
        if self.served.len() >= MAX_OWNERS {
            // Bounds the memory. Owners without an entry count as never served, which is fair enough once in thousands.
            self.served.clear();
        }
        self.turn += 1;
        self.served.insert(owner, self.turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners<const N: usize>() -> [OwnerId; N] {
        std::array::from_fn(|_| OwnerId::generate(1, 1))
    }

    fn row(owner: OwnerId, queue: ReleaseQueue) -> ClaimableRow {
        ClaimableRow {
            id: ReleaseId::generate(1, 1),
            follows: false,
            owner,
            queue,
            building: false,
        }
    }

    fn load(room: usize) -> Load {
        Load {
            room: HashMap::from([(ReleaseQueue::Build, room), (ReleaseQueue::Static, room)]),
            per_owner: MAX_PER_OWNER,
            ..Load::default()
        }
    }

    #[test]
    fn owners_take_turns_however_much_each_has_queued() {
        let mut schedule = Schedule::default();
        let [first, others @ ..] = owners::<6>();
        let build = |owner| row(owner, ReleaseQueue::Build);
        let mut waiting: Vec<_> = (0..20).map(|_| build(first)).collect();
        waiting.extend(
            others
                .iter()
                .flat_map(|owner| [build(*owner); 2].map(|_| build(*owner))),
        );
        let mut order = Vec::new();
        // One slot becomes free at a time, and nobody holds another.
        while let Some((next, _)) = schedule.pick(waiting.clone(), load(1)).pop() {
            waiting.retain(|row| row.id != next.id);
            order.push(next.owner);
        }
        let different = |some: &[OwnerId]| some.iter().collect::<HashSet<_>>().len();
        assert_eq!(order.len(), 30);
        assert_eq!((different(&order[..6]), different(&order[6..12])), (6, 6));
        assert!(order[12..].iter().all(|it| *it == first));
    }

    #[test]
    fn who_has_less_in_work_is_next() {
        let mut schedule = Schedule::default();
        let [busy, idle] = owners();
        let waiting = [busy, idle].map(|owner| row(owner, ReleaseQueue::Build));
        let mut load = load(1);
        load.active.insert((ReleaseQueue::Build, busy), 3);
        let picked = schedule.pick(waiting.to_vec(), load);
        assert_eq!(picked[0].0.owner, idle);
    }

    #[test]
    fn full_queues_hold_up_nobody_else_and_no_owner_fills_one() {
        let mut schedule = Schedule::default();
        let [owner] = owners();
        let mut waiting: Vec<_> = (0..30).map(|_| row(owner, ReleaseQueue::Build)).collect();
        waiting.extend((0..30).map(|_| row(owner, ReleaseQueue::Static)));
        let mut load = load(MAX_STATIC);
        load.room.insert(ReleaseQueue::Build, 0);
        let picked = schedule.pick(waiting, load);
        assert_eq!(picked.len(), MAX_PER_OWNER);
        assert!(
            picked
                .iter()
                .all(|(_, queue)| *queue == ReleaseQueue::Static)
        );
    }

    #[test]
    fn one_build_slot_is_never_the_same_owners() {
        let mut schedule = Schedule::default();
        let [owner] = owners();
        let waiting = (0..30).map(|_| row(owner, ReleaseQueue::Build));
        let picked = schedule.pick(waiting.collect(), load(MAX_BUILDS));
        assert_eq!(picked.len(), MAX_BUILDS - 1);
    }

    #[test]
    fn what_lost_its_image_waits_for_a_turn() {
        let mut schedule = Schedule::default();
        let [owner] = owners();
        let lost = row(owner, ReleaseQueue::Deploy);
        schedule.note_build(lost.id);
        let mut full = load(0);
        full.room.insert(ReleaseQueue::Deploy, 9);
        assert!(schedule.pick(vec![lost], full).is_empty());
        let picked = schedule.pick(vec![lost], load(1));
        assert_eq!(picked[0].1, ReleaseQueue::Build);
    }

    #[test]
    fn interrupted_builds_take_turns_before_those_that_were_not_begun() {
        let mut schedule = Schedule::default();
        let owners = owners::<6>();
        // As after an engine that went away and came back: some began meanwhile and hold slots.
        let waiting: Vec<_> = owners
            .iter()
            .flat_map(|owner| {
                let (begun, new) = (
                    row(*owner, ReleaseQueue::Build),
                    row(*owner, ReleaseQueue::Build),
                );
                [
                    new,
                    ClaimableRow {
                        building: true,
                        ..begun
                    },
                ]
            })
            .collect();
        assert!(schedule.pick(waiting.clone(), load(0)).is_empty());
        let picked = schedule.pick(waiting, load(MAX_BUILDS));
        assert_eq!(picked.len(), MAX_BUILDS);
        assert!(picked.iter().all(|(row, _)| row.building));
    }
}

//! Whether all is well after a step.

use super::*;

impl World {
    /// Whether every page has its content somewhere, and the books agree.
    pub(super) fn look(&self) -> Result<(), String> {
        self.look_at_slots()?;
        self.look_at_groups()?;
        for number in 0..self.programs.len() {
            let quiet = kernel(|kernel| kernel.memories[number].changing == 0);
            let known = number == 0 || self.child(number).is_some();
            if quiet && known && self.programs[number].runs {
                self.look_at_pages(number)?;
            }
        }
        Ok(())
    }

    fn child(&self, number: usize) -> Option<&super::super::child::Child> {
        self.engine.children.iter().find(|child| child.memory() == number)
    }

    fn look_at_pages(&self, number: usize) -> Result<(), String> {
        let (space, table, sent) = match self.child(number).filter(|_| number > 0) {
            Some(child) => (&child.space, &child.table, child.relief.sent.as_slice()),
            None => (&self.engine.space, &self.engine.table, &[][..]),
        };
        for (&address, want) in &self.programs[number].wants {
            let standing = kernel(|kernel| {
                let with_helper = kernel.helping.get(&number).and_then(|helping| helping.has.get(&address));
                let there = kernel.memories[number].standing.get(&address);
                there.copied().or(with_helper.map(|&content| Standing::Content(content)))
            });
            let page = page_at(space, address).filter(|&page| page < table.len());
            let would_be = match (standing, page) {
                (Some(standing), _) => standing,
                (None, None) => Standing::Content(0),
                (None, Some(page)) => self.would_be(table, page, sent),
            };
            let is_lost = would_be == Standing::Poison && self.scope.may_lose(number);
            if !want.allows(would_be) && !is_lost {
                let state = page.map(|page| (page, table.state(page), table.slot(page), table.place(page)));
                return Err(format!("{number}, {address:x}: {want:?} wanted, {would_be:?} there: {state:?}"));
            }
        }
        Ok(())
    }

    /// What a thread that touches a page which is not in place would get.
    fn would_be(&self, table: &Table, page: u32, sent: &[Sent]) -> Standing {
        let on_store = |slot: u32| {
            let content = kernel(|kernel| kernel.store.get(&(u64::from(slot) * PAGE)).copied());
            let mut bytes = content.map(|content| page_of(content).to_vec()).unwrap_or_default();
            if let Some(seal) = self.engine.seal.as_ref().filter(|_| content.is_some()) {
                seal.open(&mut bytes, slot, self.engine.slots.opening(slot));
            }
            match content.filter(|_| mark_of(&bytes, SEED) == table.mark(page)) {
                Some(_) => Standing::Content(content_of(&bytes)),
                None => Standing::Poison,
            }
        };
        match table.state(page) {
            State::Empty | State::Zeroes | State::Resident | State::Unpacked => Standing::Content(0),
            State::Staged if table.place(page).is_some_and(|place| place & SENT != 0) => {
                let (_, content) = &sent[(table.place(page).unwrap() & !SENT) as usize];
                Standing::Content(content_of(content))
            }
            State::Staged => {
                let frame = FRAMES + u64::from(table.place(page).unwrap()) * PAGE;
                let content = kernel(|kernel| kernel.frames.get(&frame).copied());
                content.map_or(Standing::Poison, Standing::Content)
            }
            State::Stored | State::Loading => on_store(table.slot(page)),
            State::Compressed => {
                let mut bytes = [0; PAGE as usize];
                let content = self.engine.pool.get(table.place(page).unwrap(), &mut bytes);
                content.map_or(Standing::Poison, |page| Standing::Content(content_of(page)))
            }
            State::Lost => Standing::Poison,
        }
    }

    /// Slots that a page has are known to be had, and no page has another's; frames are as many as are counted.
    fn look_at_slots(&self) -> Result<(), String> {
        let engine = &self.engine;
        let mut owned = BTreeMap::new();
        for page in pages_of(&engine.space) {
            let slot = engine.table.slot(page);
            if slot != 0 {
                if !engine.slots.is_owned(slot) {
                    return Err(format!("slot {slot} of page {page} passes for free"));
                }
                if let Some(other) = owned.insert(slot, page) {
                    return Err(format!("slot {slot} is of pages {page} and {other}"));
                }
            }
        }
        let mut taken: BTreeSet<u32> = owned.keys().copied().collect();
        for child in &engine.children {
            let (space, table) = (&child.space, &child.table);
            let pages = pages_of(space).into_iter().filter(|&page| page < table.len());
            taken.extend(pages.map(|page| table.slot(page)).filter(|&slot| slot != 0));
        }
        let of_write = engine.helping.write.as_ref();
        taken.extend(of_write.into_iter().flat_map(|it| it.slot..it.slot + it.sent.len() as u32));
        let of_gone = engine.parting.gone.iter().flat_map(|gone| gone.table.with_slots(0..gone.table.len()));
        taken.extend(of_gone.map(|(_, slot)| slot));
        // Where a page was lost nothing is written again.
        let kept = if self.scope.losses { engine.stats.get(Stat::Lost) } else { 0 };
        let wanted = taken.len() as u64;
        if !(wanted..=wanted + kept).contains(&engine.slots.taken()) {
            return Err(format!("{} slots are taken, {} wanted", engine.slots.taken(), taken.len()));
        }
        let frames = kernel(|kernel| kernel.frames.len() as u64);
        if engine.staging.pages() != frames {
            return Err(format!("{} frames are counted, {frames} there", engine.staging.pages()));
        }
        self.look_at_cells()?;
        self.look_at_count()
    }

    /// Each cell is a compressed page's of its owner or of children, and there are no others.
    fn look_at_cells(&self) -> Result<(), String> {
        let engine = &self.engine;
        let cell_of = |table: &Table, page| (page < table.len()).then(|| table.cell(page)).flatten();
        let own = pages_of(&engine.space)
            .into_iter()
            .filter_map(|page| Some((page, cell_of(&engine.table, page)?)));
        let mut taken = BTreeSet::new();
        for (page, cell) in own {
            if engine.pool.owner(cell) != Some(page) {
                return Err(format!("cell {cell} of page {page} has owner {:?}", engine.pool.owner(cell)));
            }
            taken.insert(cell);
        }
        for child in &engine.children {
            let pages = pages_of(&child.space).into_iter().filter(|&page| page < child.table.len());
            taken.extend(pages.filter_map(|page| cell_of(&child.table, page)));
        }
        for child in &engine.parting.gone {
            taken.extend((0..child.table.len()).filter_map(|page| cell_of(&child.table, page)));
        }
        if engine.pool.live() != taken.len() as u64 {
            return Err(format!("{} cells are taken, {} wanted", engine.pool.live(), taken.len()));
        }
        Ok(())
    }

    /// No group of frames is taken for nothing, but for the one into which a block just begins to leave.
    fn look_at_groups(&self) -> Result<(), String> {
        let begins = self.engine.leaving.is_some_and(|leaving| leaving.begins());
        let empty = self.engine.staging.taken_for_nothing();
        if empty > u32::from(begins) {
            return Err(format!("{empty} groups of frames are taken and empty"));
        }
        Ok(())
    }

    /// The pages in place are counted exactly, once nothing is on its way to be told.
    fn look_at_count(&self) -> Result<(), String> {
        let (standing, changing) = kernel(|kernel| {
            let memory = &kernel.memories[0];
            let there = memory.standing.iter().filter(|(_, standing)| **standing != Standing::Poison);
            let there = there.filter(|(address, _)| memory.mapped[*address]).map(|(&address, _)| address);
            (there.collect::<Vec<_>>(), memory.changing)
        });
        // Zeroes that are read count for nothing, nor does what was written there until it is looked for.
        let counts = |page: u32| self.engine.table.state(page) != State::Zeroes;
        let known =
            standing.iter().filter(|&&address| page_at(&self.engine.space, address).is_some_and(counts));
        let known = known.count();
        let resident = self.engine.queues.resident();
        // Given up, and not looked at since.
        let late = !self.engine.giving_up.blocks.is_empty();
        // A page that was put in place between the telling and the doing is noticed when it is evicted.
        let more =
            if self.scope.remove || self.scope.free { resident.saturating_sub(known as u64) } else { 0 };
        if changing == 0 && !late && resident - more != known as u64 {
            return Err(format!("{resident} pages are believed in place, {known} are"));
        }
        Ok(())
    }
}

pub(super) fn pages_of(space: &Space) -> Vec<u32> {
    space.regions().flat_map(Region::pages).collect()
}

fn page_at(space: &Space, address: u64) -> Option<u32> {
    space.pages_in(&(address..address + PAGE)).first().map(|pages| pages.start)
}

//! How a stage gets its memory: room for its areas, pins on its inputs, and then its threads.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bireme_core::flow::{AreaSpec, Origin, StageId, StageSpec};
use bireme_core::value::Location;
use bireme_net::bulk::Source;
use bireme_store::{Sealed, UnsealedLocation};

use super::super::objects::{Answer, Objects};
use super::super::transfers::{Growth, Part as GrowingPart};
use super::intake::{Intake, LOCAL_STREAMS_MAX, LocalStream, peer};
use super::running::{Input, Place, Running};
use super::{Phase, StageEvent, Stages};
use crate::objects::{from_store, to_store};

/// A stage that waits for its memory.
pub(super) struct Starting {
    spec: StageSpec,
    areas: Vec<Option<Place>>,
    inputs: Vec<Option<Input>>,
    /// Inputs that still grow: who tells.
    growths: Vec<(usize, Arc<Growth>)>,
}

impl Starting {
    pub(super) fn new(spec: StageSpec) -> Self {
        let areas = spec.areas.iter().map(|_| None).collect();
        let inputs = spec.inputs.iter().map(|_| None).collect();
        Self { spec, areas, inputs, growths: Vec::new() }
    }

    /// The room that it has already.
    pub(super) fn into_places(self) -> impl Iterator<Item = Place> {
        self.areas.into_iter().flatten()
    }
}

impl Stages {
    /// Asks for everything that a stage needs.
    pub(super) fn gather(&mut self, objects: &mut Objects, id: StageId) {
        let Some(Phase::Starting(starting)) = self.stages.get(&id).map(|stage| &stage.phase) else { return };
        let (inputs, areas) = (starting.spec.inputs.clone(), starting.spec.areas.clone());
        for (index, at) in inputs.into_iter().enumerate() {
            if let Err(reason) = self.find_input(objects, id, index, at) {
                return self.refuse(id, &format!("input {index} cannot be read: {reason}"));
            }
        }
        for (index, area) in areas.into_iter().enumerate() {
            match area {
                AreaSpec::Given { at, .. } => self.claim(objects, id, index, Ok(at)),
                AreaSpec::Output { len, .. } | AreaSpec::Scratch { len } => {
                    let number = self.ask(id, true, index);
                    objects.ask_room(number, len);
                }
            }
        }
    }

    fn refuse(&self, id: StageId, reason: &str) {
        if let Some(stage) = self.stages.get(&id) {
            stage.progress.end(reason, None);
        }
    }

    fn ask(&mut self, id: StageId, area: bool, index: usize) -> u64 {
        self.next_number += 1;
        self.asked.insert(self.next_number, (id, area, index));
        self.next_number
    }

    fn starting(&mut self, id: StageId) -> Option<&mut Starting> {
        match &mut self.stages.get_mut(&id)?.phase {
            Phase::Starting(starting) => Some(starting),
            Phase::Running(_) => None,
        }
    }

    fn find_input(&mut self, objects: &mut Objects, id: StageId, index: usize, at: Location) -> Result<(), String> {
        if at.node != self.node {
            return Err(format!("it lies on {}, and this is {}: fetch it first", at.node, self.node));
        }
        let growth = self.lock_arriving().get(&(at.entry, at.generation)).cloned();
        let input = match growth {
            Some(growth) => {
                let view =
                    self.client.pin_growing(UnsealedLocation(to_store(at))).map_err(|error| error.to_string())?;
                if let Some(starting) = self.starting(id) {
                    starting.growths.push((index, growth));
                }
                Input::Growing(view)
            }
            None => match self.client.pin(Sealed(to_store(at))) {
                Ok(pinned) => Input::Whole(pinned),
                Err(bireme_store::PinError::Moved) => match self.client.pin_growing(UnsealedLocation(to_store(at))) {
                    // The process that runs the stage is writing it, and says how far it is.
                    Ok(view) => Input::Growing(view),
                    Err(_) => {
                        let number = self.ask(id, false, index);
                        objects.ask_place(number, at);
                        return Ok(());
                    }
                },
                Err(error) => return Err(error.to_string()),
            },
        };
        if let Some(starting) = self.starting(id) {
            starting.inputs[index] = Some(input);
        }
        Ok(())
    }

    /// The store's answers to what was asked.
    pub(super) fn take_answers(&mut self, objects: &mut Objects) {
        for answer in objects.take_stage_answers() {
            let (number, found) = match answer {
                Answer::Room { number, room } => (number, room),
                Answer::Place { number, place } => (number, place),
            };
            let Some((id, area, index)) = self.asked.remove(&number) else { continue };
            if area {
                self.claim(objects, id, index, found);
            } else {
                let found = found.and_then(|at| self.client.pin(Sealed(to_store(at))).map_err(|why| why.to_string()));
                match (found, self.starting(id)) {
                    (Ok(pinned), Some(starting)) => starting.inputs[index] = Some(Input::Whole(pinned)),
                    (Err(reason), _) => self.refuse(id, &format!("input {index} cannot be read: {reason}")),
                    (Ok(_), None) => {}
                }
            }
            self.launch_if_ready(objects, id);
        }
    }

    /// Takes room for an area.
    fn claim(&mut self, objects: &mut Objects, id: StageId, index: usize, room: Result<Location, String>) {
        let at = match room {
            Ok(at) => at,
            Err(reason) => return self.refuse(id, &format!("no room for what the stage makes: {reason}")),
        };
        let is_over = self.stages.get(&id).is_none_or(|stage| stage.progress.marks().ended.is_some());
        let claimed = self.client.writer(UnsealedLocation(to_store(at)));
        match (claimed, self.starting(id)) {
            (Ok(writer), Some(starting)) if !is_over => {
                let output = !matches!(starting.spec.areas[index], AreaSpec::Scratch { .. });
                let growth = output.then(Arc::default);
                starting.areas[index] = Some(Place { area: Arc::new(writer.into_area()), growth });
            }
            // Nobody needs it any more.
            (Ok(_), _) => objects.abort(at),
            (Err(error), _) => {
                objects.abort(at);
                self.refuse(id, &format!("no room for what the stage makes: {error}"));
            }
        }
    }

    /// Starts the threads of a stage that has everything.
    pub(super) fn launch_if_ready(&mut self, objects: &mut Objects, id: StageId) {
        let Some(stage) = self.stages.get_mut(&id) else { return };
        let Phase::Starting(starting) = &mut stage.phase else { return };
        let whole = starting.areas.iter().all(Option::is_some) && starting.inputs.iter().all(Option::is_some);
        if !whole || stage.progress.marks().ended.is_some() {
            return;
        }
        let areas = std::mem::take(&mut starting.areas).into_iter().flatten().collect();
        let inputs = std::mem::take(&mut starting.inputs).into_iter().flatten().collect();
        let (spec, growths) = (starting.spec.clone(), std::mem::take(&mut starting.growths));
        let running = Arc::new(Running::new(spec, areas, inputs, Arc::clone(&stage.progress)));
        stage.phase = Phase::Running(Arc::clone(&running));
        if let Err(reason) = self.write_heads(&running) {
            return stage_failed(&running, &reason);
        }
        let at: Vec<Location> = self.outputs(&running).collect();
        if !at.is_empty() {
            self.events.push(StageEvent::Placed { id, at });
        }
        running.look_at_inputs();
        for (input, growth) in growths {
            self.watch(&running, input, growth);
        }
        self.registry.open(id, &running);
        let mut next = 0;
        while next < running.spec.intakes.len() {
            let together = running.together(next);
            match peer(&running, next, self.node) {
                Some(_) => self.pull(Intake::new(&running, next)),
                None => self.take_local(&running, next..together),
            }
            next = together;
        }
        self.review(objects, id);
    }

    fn outputs(&self, running: &Running) -> impl Iterator<Item = Location> {
        let node = self.node;
        let outputs = running.areas.iter().filter(|place| place.growth.is_some());
        outputs.map(move |place| from_store(node, place.area.location().0))
    }

    /// Writes the first bytes of areas, and lets others read them as they grow.
    fn write_heads(&self, running: &Running) -> Result<(), String> {
        for (place, spec) in running.areas.iter().zip(&running.spec.areas) {
            let (head, area) = (spec.head(), &place.area);
            if !head.is_empty() {
                let written = area.write(0..head.len() as u64);
                written.map_err(|error| error.to_string())?.bytes_mut().copy_from_slice(head);
            }
            if let Some(growth) = &place.growth {
                let at = area.location().0;
                self.lock_arriving().insert((at.entry, at.generation), Arc::clone(growth));
            }
        }
        Ok(())
    }

    /// Takes in streams that stay on this node.
    fn take_local(&self, running: &Arc<Running>, intakes: Range<usize>) {
        let is_empty = |intake: usize| {
            running.stream_len(intake) == 0 && matches!(running.spec.intakes[intake].origin, Origin::Local { .. })
        };
        if intakes.clone().all(is_empty) {
            return;
        }
        if self.locals.fetch_add(1, Ordering::Relaxed) >= LOCAL_STREAMS_MAX {
            self.locals.fetch_sub(1, Ordering::Relaxed);
            let why = format!("{LOCAL_STREAMS_MAX} streams are taken in within this node, which is the limit");
            return stage_failed(running, &why);
        }
        let (registry, count) = (Arc::clone(&self.registry), Arc::clone(&self.locals));
        let stream = LocalStream { running: Arc::clone(running), intakes, registry, count };
        if let Err(error) = crate::thread::spawn("bireme-stage", move || stream.run()) {
            self.locals.fetch_sub(1, Ordering::Relaxed);
            stage_failed(running, &error.to_string());
        }
    }

    /// Follows an input that still grows, on a thread.
    fn watch(&self, running: &Arc<Running>, input: usize, growth: Arc<Growth>) {
        let Some(Input::Growing(view)) = running.inputs.get(input) else { return };
        let (part, watched) = (GrowingPart { view: view.clone(), growth }, Arc::clone(running));
        let follow = move || {
            let mut at = 0;
            while at < part.len() && watched.progress.marks().ended.is_none() {
                match part.wait_beyond(at, Duration::from_secs(1)) {
                    Ok(there) => at = there,
                    Err(reason) => return stage_failed(&watched, &reason),
                }
                watched.progress.change(|marks| marks.grown[input] = at);
            }
        };
        if let Err(error) = crate::thread::spawn("bireme-stage", follow) {
            stage_failed(running, &error.to_string());
        }
    }
}

fn stage_failed(running: &Running, reason: &str) {
    running.progress.end(reason, None);
}

//! What happens to instances, as it happens.

use crate::docker::engine::Engine;
use crate::docker::labels::INSTANCE;
use crate::error::Error;
use crate::event::{Event, EventKind};
use crate::instance::{InstanceId, InstanceKey};
use bollard::models;
use bollard::query_parameters::EventsOptions;
use estrade_model::Timestamp;
use futures_util::{Stream, StreamExt};
use std::future::ready;

impl EventKind {
    const NAMES: [&str; 4] = ["start", "die", "oom", "destroy"];

    fn read(action: &str, code: Option<&String>) -> Option<Self> {
        match action {
            "start" => Some(Self::Started),
            "die" => Some(Self::Ended(code?.parse().ok()?)),
            "oom" => Some(Self::OutOfMemory),
            "destroy" => Some(Self::Removed),
            _ => None,
        }
    }
}

impl Engine {
    /// What happens to this installation's instances from now on. It ends when the engine does, and may
    /// have missed something between two: look at [`Engine::instances`] after each beginning.
    pub fn events(&self) -> impl Stream<Item = Result<Event, Error>> + Send + use<> {
        let mut filters = self.installation.filter(&[INSTANCE.to_owned()]);
        filters.insert("type".to_owned(), vec!["container".to_owned()]);
        filters.insert(
            "event".to_owned(),
            EventKind::NAMES.map(str::to_owned).into(),
        );
        let options = EventsOptions {
            filters: Some(filters),
            ..Default::default()
        };
        self.docker.events(Some(options)).filter_map(|message| {
            ready(match message {
                Ok(message) => read(message).map(Ok),
                Err(error) => Some(Err(Error::from_bollard("listening to it", error))),
            })
        })
    }
}

fn read(message: models::EventMessage) -> Option<Event> {
    let actor = message.actor?;
    let attributes = actor.attributes?;
    Some(Event {
        id: InstanceId(actor.id?),
        key: InstanceKey::read(&attributes)?,
        kind: EventKind::read(&message.action?, attributes.get("exitCode"))?,
        at: Timestamp::from_millis(message.time_nano?.div_euclid(1_000_000)),
    })
}

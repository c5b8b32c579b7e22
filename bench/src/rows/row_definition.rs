//! A row of the table: which command, on which storage, in which state, and how fast it has to be.

use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::data::job::{Job, JobPlaces};
use crate::data::row_datasets::Dataset;
use crate::data::share_programs::App;
use crate::error::Error;
use crate::rows::cost_limits::{Cost, Unit};
use crate::rows::storage_kinds::Place;

/// State of memory before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// Memory has nothing of the storage under test. Without a cost, plain's time over runahead's
    /// is at least the target.
    Cold,
    /// Memory has all of it. Without a cost, runahead's time over plain's is at most the target.
    Warm,
}

/// Content of the storage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Content {
    Nothing,
    /// The tree.
    Tree,
    /// The tree twice, the second time as a git repository.
    Repository,
    /// The tree as a git repository, with its git directory beside it.
    RepositoryApart,
    App(&'static App),
    Data(&'static Dataset),
    /// A Debian system for everyday commands, or as much of it as the image of a container has.
    System,
}

/// Makes the command.
pub type MakeJob = dyn Fn(&JobPlaces<'_>) -> Result<Job, Error>;

/// A row.
#[derive(Clone)]
pub struct Row {
    /// The name that `--row` takes.
    pub name: String,
    /// Description for people.
    pub about: &'static str,
    pub place: &'static Place,
    pub content: Content,
    pub make: Rc<MakeJob>,
    pub cache: Cache,
    /// A ratio of elapsed times; see [`Cache`]. Not judged if there is a cost.
    pub target: f64,
    /// Limits that are judged instead of the target.
    pub cost: Option<Cost>,
    /// Mechanism that `runahead run --without` switches off. Nothing is judged then.
    pub without: Option<&'static str>,
    /// True if one run takes so long that there are as many pairs as of cold runs.
    pub long: bool,
}

impl Row {
    /// A cold row without a target.
    pub fn new(
        name: impl Into<String>,
        place: &'static Place,
        content: Content,
        make: impl Fn(&JobPlaces<'_>) -> Result<Job, Error> + 'static,
        about: &'static str,
    ) -> Self {
        Self {
            name: name.into(),
            about,
            place,
            content,
            make: Rc::new(make),
            cache: Cache::Cold,
            target: 0.0,
            cost: None,
            without: None,
            long: false,
        }
    }

    /// Cold, and at least `target` times faster.
    pub fn cold(self, target: f64) -> Self {
        Self { target, ..self }
    }

    /// Cold, with nothing to gain: at most `limit` times slower.
    pub fn futile(self, limit: f64) -> Self {
        Self { target: limit, cost: Some(Cost::ratio(Unit::Seconds, limit)), ..self }
    }

    /// Warm, and at most `target` times slower.
    pub fn warm(self, target: f64) -> Self {
        Self { target, cache: Cache::Warm, ..self }
    }

    /// Warm, with limits on the figures.
    pub fn cost(self, cost: Cost) -> Self {
        let target = cost.ratio.or(cost.added).unwrap_or(0.0);
        Self { target, cost: Some(cost), cache: Cache::Warm, ..self }
    }

    /// True for everyday rows: commands without a target, run three times in a fixed order.
    pub fn is_everyday(&self) -> bool {
        self.content == Content::System
    }

    /// The dataset that it works on.
    pub fn data(&self) -> Option<&'static Dataset> {
        match self.content {
            Content::Data(data) => Some(data),
            _ => None,
        }
    }

    /// Makes the command for the storage at `ground.root`.
    pub fn job(&self, ground: &JobPlaces<'_>) -> Result<Job, Error> {
        match self.data() {
            Some(data) => {
                data.require()?;
                let dir = &ground.root.join(data.dir);
                (self.make)(&JobPlaces { dir, ..*ground })
            }
            None => (self.make)(ground),
        }
    }
}

impl PartialEq for App {
    fn eq(&self, other: &Self) -> bool {
        self.dir == other.dir
    }
}

//! Every decision of Bireme, as plain synchronous state machines.
//!
//! A machine takes an event and the time and appends effects: `step(event, now, &mut effects)`. No clock, socket, thread,
//! file, random number or hash order is inside, so the same code runs in production (`runtime` turns the world into
//! events and effects into the world) and in the simulator (`sim`), from one seed.
//!
//! Nothing here returns an error for a failing world: a lost worker, a full store, a timeout are events.

pub mod codec;
pub mod collective;
pub mod controller;
pub mod departed;
pub mod failure;
pub mod flow;
pub mod gather;
pub mod heartbeat;
pub mod id;
pub mod idle;
pub mod lane;
pub mod ledger;
pub mod map;
pub mod message;
pub mod names;
pub mod node;
pub mod owner;
pub mod record;
pub mod reduce;
pub mod resources;
pub mod rotation;
pub mod route;
pub mod schedule;
pub mod session;
pub mod shared;
pub mod spec;
pub mod stream;
pub mod throttle;
pub mod time;
pub mod value;
pub mod waits;
mod wire;
pub mod worker;

//! The protocol as others meet it: many processes, crashes, foreign programs, hostile files and clocks.

mod claims;
mod crash;
mod crowd;
mod desk;
mod files;
mod lock;
mod meanwhile;
mod replay;
mod workflows;

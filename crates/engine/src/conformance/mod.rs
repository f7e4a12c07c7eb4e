//! What every engine must keep: one law a function, run on a store that a builder makes.
//!
//! A new engine passes [`run`] with a few lines of set-up. The laws panic when they are broken, and know nothing
//! about any one engine.

mod compaction;
mod durability;
mod order;
mod reading;
mod scribe;
mod spaces;

use std::sync::Arc;

use crate::{Engine, Position, Record};

pub use scribe::Scribe;

/// Makes stores for the laws to run on.
pub trait Builder: Sync {
    /// Keeps a store alive, and cleans up behind it.
    type Guard: Send + Sync;

    /// A fresh and empty store, and an engine on it.
    fn build(&self) -> impl Future<Output = (Self::Guard, Arc<dyn Engine>)> + Send;

    /// An engine on the same store, after all others on it were dropped.
    fn reopen(&self, guard: &Self::Guard) -> impl Future<Output = Arc<dyn Engine>> + Send;

    /// A second engine on the same store beside the first; none if a store takes one only.
    fn beside(&self, guard: &Self::Guard) -> impl Future<Output = Option<Arc<dyn Engine>>> + Send;

    /// The place after a record, by the chain that the engine makes.
    fn following(&self, before: Position, record: &Record) -> Position {
        before.following(record.batch, record.stamp, &record.payload)
    }
}

/// Runs every law, each on a store of its own.
pub async fn run<B: Builder>(builder: &B) {
    macro_rules! laws {
        ($($room:ident: $($law:ident)+;)+) => {
            $($(
                tracing::info!(law = stringify!($law));
                $room::$law(builder).await;
            )+)+
        };
    }
    laws! {
        order:
            appends_are_in_order_and_without_a_gap
            a_stale_writer_is_refused_and_told_what_it_missed
            of_many_writers_each_revision_has_one
            stamps_never_fall
            a_proposal_from_the_past_or_the_future_does_not_bend_time
            confirm_says_whether_it_is_still_the_end
            a_batch_over_the_limit_is_refused_and_changes_nothing;
        reading:
            an_empty_ledger_reads_as_nothing
            payloads_come_back_byte_for_byte
            a_reader_gets_exactly_what_it_missed
            a_batch_is_found_by_its_id
            a_reader_with_another_past_is_told_that_it_is_void
            large_batches_are_kept_like_small_ones;
        compaction:
            a_snapshot_stands_for_what_it_replaced
            a_snapshot_far_behind_the_end_takes_nothing_after_it
            a_later_snapshot_replaces_an_earlier_one
            a_snapshot_stands_only_for_what_is_durable
            an_older_snapshot_changes_nothing
            a_snapshot_of_another_past_is_refused
            appends_go_on_while_a_snapshot_is_taken
            bytes_since_the_snapshot_are_payload_bytes_behind_it;
        durability:
            what_was_appended_becomes_durable
            all_is_there_after_reopening
            a_snapshot_is_there_after_reopening
            time_does_not_fall_over_a_reopening
            other_openers_hear_that_it_moved;
        spaces:
            spaces_are_kept_apart
            spaces_are_listed_under_their_names
            two_ledgers_never_share_an_epoch;
    }
}

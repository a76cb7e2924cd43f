//! What every [`Core`] must do, as one test suite for all platforms.
//!
//! A platform says how a domain of ranks is made and run ([`Machine`]), writes
//! `ringwork_conformance::suite!(ItsMachine);` in a test, and gets every sentence of the suite as a test of
//! its own. For tests only: nothing that ships depends on this crate.
//!
//! Kernels stage their own data and look at their own results, so a platform needs no other way into its
//! memory. What only some platforms have (deadlines, real deaths) is tested beside them.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "this is a test suite")]

#[doc(hidden)]
pub mod alarm;
#[doc(hidden)]
pub mod blocks;
#[doc(hidden)]
pub mod compute;
#[doc(hidden)]
pub mod data;
#[doc(hidden)]
pub mod elementwise;
#[doc(hidden)]
pub mod order;
#[doc(hidden)]
pub mod queues;
mod refused;
#[doc(hidden)]
pub mod signals;

#[doc(hidden)]
pub use refused::check;

use ringwork_isa::{Barrier, Core, Element, Rank, Result, SIGNAL_STRIDE_BYTES, Shared, Signal, Signals};
use ringwork_layout::{BufferPlace, CellRow, Layout};

/// A domain on some platform: fresh windows, signals at zero.
pub trait Machine: Sized {
    /// What kernels run on.
    type Core: Core;

    /// A domain of `ranks`, each with [`SIGNALS`] cells and [`DATA_BYTES`] of data.
    fn new(ranks: u32) -> Self;

    /// Where the windows are.
    fn layout(&self) -> Layout;

    /// Runs a kernel on every rank at once; what each returned, in rank order. A panic of one is a panic
    /// of this.
    fn run<K>(&self, kernel: K) -> Vec<Result<()>>
    where
        K: AsyncFn(&Self::Core, Seat) -> Result<()> + Clone + Send + Sync + 'static;

    /// Ends all waits in the domain: because a member died, or for another reason.
    fn alarm(&self, dead: Option<Rank>, reason: &str);

    /// Runs a kernel that succeeds everywhere.
    fn run_well<K>(&self, kernel: K)
    where
        K: AsyncFn(&Self::Core, Seat) -> Result<()> + Clone + Send + Sync + 'static,
    {
        for (rank, end) in self.run(kernel).into_iter().enumerate() {
            assert_eq!(end, Ok(()), "rank {rank}");
        }
    }
}

/// Signal cells of each rank.
pub const SIGNALS: u32 = 20;
/// Bytes of data of each rank.
pub const DATA_BYTES: u64 = 8192 - SIGNALS as u64 * SIGNAL_STRIDE_BYTES;

/// A rank's place in the domain: what its handles are made from.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    /// The rank.
    pub me: Rank,
    /// Where the windows are.
    pub layout: Layout,
}

impl Seat {
    /// `len` elements at a byte offset of the data. Not checked: cores are what is tested.
    #[must_use]
    pub fn buffer<T: Element>(&self, offset: u64, len: u64) -> Shared<T> {
        let (dtype, count) = (T::DTYPE, usize::try_from(len).unwrap());
        self.layout.region(self.me, BufferPlace { offset, dtype, count })
    }

    /// All my signals.
    #[must_use]
    pub fn signals(&self) -> Signals {
        self.row(0)
    }

    /// My signals from one on.
    #[must_use]
    pub fn row(&self, first: u32) -> Signals {
        let count = SIGNALS - first;
        self.layout.signals(self.me, CellRow { first, count })
    }

    /// One of my signals.
    #[must_use]
    pub fn signal(&self, index: u32) -> Signal {
        self.signals().at(index).unwrap()
    }

    /// A barrier over signal 0.
    #[must_use]
    pub fn barrier(&self) -> Barrier {
        Barrier::new(self.signals())
    }
}

/// The whole suite, as tests of one [`Machine`]. `suite!(ItsMachine, simulated)` is for one whose memory is made of
/// segments alone: it has no header to protect and nobody who can die.
/// `suite!(ItsMachine, stepping)` is for one that does an instruction when it is awaited.
#[macro_export]
macro_rules! suite {
    ($machine:ty) => {
        $crate::suite!($machine, simulated);
        $crate::suite!($machine; data:
            a_reduction_of_too_many_is_refused_and_writes_nothing,
            handles_that_reach_outside_the_data_are_refused_and_write_nothing,
        );
        $crate::suite!($machine; signals:
            signals_outside_the_row_or_the_window_are_refused,
        );
        $crate::suite!($machine; alarm:
            a_wait_in_an_aborted_domain_says_why,
            a_wait_for_a_dead_peer_names_it,
            a_wait_that_is_satisfied_succeeds_despite_the_alarm,
            the_first_alarm_stays,
        );
        $crate::suite!($machine; queues:
            a_full_queue_names_the_reader_that_stopped,
        );
    };
    ($machine:ty, stepping) => {
        $crate::suite!($machine; order:
            an_instruction_that_is_awaited_out_of_order_names_both_lines,
            an_instruction_that_is_never_awaited_is_an_error,
        );
    };
    ($machine:ty, simulated) => {
        $crate::suite!($machine; data:
            what_is_stored_is_loaded_for_every_dtype,
            a_copy_moves_its_elements_and_nothing_else,
            a_copy_of_another_length_is_refused_and_writes_nothing,
            a_copy_onto_itself_does_nothing,
            a_copy_that_partly_overlaps_is_refused_and_writes_nothing,
            a_reduction_is_folded_in_order_wide_and_rounded_once,
            a_reduction_to_all_is_the_same_reduction_on_every_rank,
            a_reduction_to_both_is_the_same_reduction_in_two_places,
            a_reduction_to_places_of_unequal_lengths_is_refused_and_writes_nothing,
            a_reduction_may_write_one_of_its_sources,
            a_reduction_that_partly_overlaps_a_source_is_refused_and_writes_nothing,
            a_reduction_of_nothing_or_unequal_lengths_is_refused,
            a_tile_of_another_length_is_refused_and_writes_nothing,
            empty_regions_are_fine_everywhere,
            a_slice_past_the_end_and_a_rank_past_the_domain_are_refused,
        );
        $crate::suite!($machine; blocks:
            a_block_is_loaded_as_a_tile_of_its_shape,
            a_tile_is_stored_to_its_block_and_nowhere_else,
            a_tile_of_another_shape_than_its_block_is_refused_and_writes_nothing,
            blocks_are_copied_to_blocks_of_their_shape_and_to_regions_of_their_length,
            a_copy_of_blocks_that_do_not_fit_is_refused_and_writes_nothing,
            rows_and_columns_that_there_are_not_are_refused,
            a_block_of_memory_that_is_not_there_is_refused_and_writes_nothing,
            what_is_clipped_is_filled_when_loaded_and_left_out_when_stored,
        );
        $crate::suite!($machine; signals:
            set_stores_and_add_adds_wrapping,
            a_rank_sees_its_own_notifications_at_once,
            every_comparison_tests_what_it_says,
            a_satisfied_wait_goes_on,
        );
        $crate::suite!($machine; compute:
            tiles_add_and_multiply_element_by_element,
            tiles_of_unequal_shape_are_refused,
            one_row_meets_every_row_and_one_column_every_column,
            functions_of_tiles_are_as_near_as_their_type_allows,
            folding_tiles_is_wide_in_order_and_rounded_once,
            casts_round_to_nearest_truncate_and_wrap,
            a_product_is_summed_wide_in_the_order_of_k,
            spending_changes_nothing,
        );
        $crate::suite!($machine; elementwise:
            functions_have_the_bits_of_an_f64_that_is_rounded_once,
            sums_and_quotients_have_the_bits_of_an_f64_that_is_rounded_once,
            comparisons_make_masks_that_select,
            not_a_number_compares_as_unequal_and_integers_do_not_wrap,
            columns_are_reduced_wide_in_the_order_of_the_rows,
            constants_and_counts_have_every_type,
            every_operation_keeps_the_shape_of_a_hollow_tile,
            operands_that_do_not_fit_are_refused_with_both_shapes,
        );
        $crate::suite!($machine; order:
            what_was_put_before_a_notify_is_there_after_the_wait,
            adds_of_all_ranks_are_never_lost,
            ranks_write_into_each_others_windows,
            one_barrier_and_two_halves_are_enough_for_any_number_of_rounds,
            one_signal_wakes_every_rank_that_waits_for_it,
            packets_carry_any_length_and_reduce_in_rank_order,
            a_packet_publishes_everything_its_writer_did_before,
            more_than_a_packet_holds_is_refused,
        );
        $crate::suite!($machine; queues:
            messages_go_both_ways_around_a_ring_in_order,
            a_sender_waits_for_a_slot_and_overtakes_nobody,
            asynchronous_messages_keep_their_numbers_in_whatever_order_they_are_joined,
            a_message_publishes_what_its_sender_did_before,
            messages_and_ports_that_do_not_fit_are_refused,
            a_copy_that_was_joined_is_there_and_can_be_published,
        );
    };
    ($machine:ty; $module:ident: $($name:ident,)*) => {$(
        #[test]
        fn $name() {
            $crate::$module::$name::<$machine>();
        }
    )*};
}

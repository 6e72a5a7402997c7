#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use super::*;
use crate::order::Remainder;

fn cursor(epoch_len: u64) -> Cursor {
    Cursor::new(epoch_len, World::single()).unwrap()
}

fn world(rank: u64, size: u64, remainder: Remainder) -> World {
    World::new(rank, size, remainder).unwrap()
}

fn begin(cursor: &mut Cursor) -> Arc<Progress> {
    let ticket = cursor.ticket();
    cursor.reserve(&ticket).unwrap()
}

fn state(position: u64, epoch_len: u64, window: Option<(u64, u64)>) -> CursorState {
    CursorState { position: Position(position), epoch_len, window }
}

fn bounds(progress: &Progress) -> (u64, u64) {
    (progress.window().start().0, progress.window().dealt_end().0)
}

fn loaded(state: CursorState, world: World) -> Cursor {
    let mut cursor = Cursor::new(state.epoch_len, world).unwrap();
    cursor.load(state).unwrap();
    cursor
}

#[test]
fn making_an_iterator_moves_nothing() {
    let mut cursor = cursor(10);
    let unused = cursor.ticket();
    assert_eq!(cursor.state(), state(0, 10, None));
    assert_eq!(cursor.state_of(&unused), state(0, 10, None));
    assert_eq!(bounds(&begin(&mut cursor)), (0, 10));
    // The unused one starts late, and then where the stream stands by then.
    assert_eq!(cursor.state_of(&unused), state(10, 10, None));
    assert_eq!(bounds(&cursor.reserve(&unused).unwrap()), (10, 20));
    assert_eq!(cursor.position(), Position(20));
}

#[test]
fn the_state_is_of_what_was_consumed() {
    let mut cursor = cursor(10);
    let progress = begin(&mut cursor);
    assert_eq!(cursor.state(), state(0, 10, Some((0, 10))));
    progress.advance(5);
    assert_eq!(cursor.state(), state(5, 10, Some((0, 10))));
    assert_eq!(cursor.position(), Position(10), "where the next iterator starts");
    assert_eq!(progress.state(), cursor.state());
    progress.advance(5);
    assert_eq!(cursor.state(), state(10, 10, None), "the end of a window is the start of the next");
}

#[test]
fn an_iterator_that_was_given_up_is_reported_until_the_next_one_starts() {
    let mut cursor = cursor(10);
    begin(&mut cursor).advance(3);
    let waiting = cursor.ticket();
    assert_eq!(cursor.state(), state(3, 10, Some((0, 10))));
    let second = cursor.reserve(&waiting).unwrap();
    assert_eq!(cursor.state(), state(10, 10, Some((10, 20))));
    second.advance(10);
    assert_eq!(cursor.state(), state(20, 10, None));
}

#[test]
fn an_older_iterator_does_not_take_the_report_back() {
    let mut cursor = cursor(10);
    let (first, second) = (begin(&mut cursor), begin(&mut cursor));
    second.advance(2);
    first.advance(7);
    assert_eq!(cursor.state(), state(12, 10, Some((10, 20))));
    assert_eq!(first.state(), state(7, 10, Some((0, 10))));
    second.finish();
    assert_eq!(cursor.state(), state(20, 10, None));
}

#[test]
fn a_loaded_window_is_completed_first() {
    let saved = state(13, 10, Some((10, 20)));
    let mut cursor = cursor(99);
    let before = cursor.ticket();
    cursor.load(saved).unwrap();
    assert_eq!((cursor.position(), cursor.epoch_len()), (Position(13), 10));
    assert_eq!(cursor.state(), saved, "before the first sample");
    assert_eq!(cursor.state_of(&cursor.ticket()), saved);
    let rest = begin(&mut cursor);
    assert_eq!(bounds(&rest), (13, 20));
    assert_eq!(cursor.state(), saved, "still before the first sample");
    rest.advance(1);
    assert_eq!(cursor.state(), state(14, 10, Some((10, 20))), "absolute, in the whole window");
    assert_eq!(bounds(&begin(&mut cursor)), (20, 30));
    // Whoever starts next takes the rest, also an iterator that was made before the load.
    cursor.load(saved).unwrap();
    assert_eq!(bounds(&cursor.reserve(&before).unwrap()), (13, 20));
}

#[test]
fn loading_ends_the_report_of_a_running_iterator() {
    let mut cursor = cursor(10);
    let running = begin(&mut cursor);
    running.advance(3);
    cursor.load(state(25, 10, Some((20, 30)))).unwrap();
    running.advance(1);
    assert_eq!(cursor.state(), state(25, 10, Some((20, 30))));
    assert_eq!(running.state(), state(4, 10, Some((0, 10))), "it goes on for itself");
    assert_eq!(bounds(&begin(&mut cursor)), (25, 30));
}

#[test]
fn several_resumes_in_one_window_stay_absolute() {
    let mut saved = state(0, 10, None);
    for consumed in 1..=25 {
        let mut cursor = loaded(saved, World::single());
        begin(&mut cursor).advance(1);
        saved = cursor.state();
        let start = consumed / 10 * 10;
        let window = (consumed % 10 != 0).then_some((start, start + 10));
        assert_eq!(saved, state(consumed, 10, window));
    }
}

#[test]
fn loading_the_end_of_a_window_starts_the_next_one() {
    for window in [None, Some((10, 20))] {
        let mut cursor = loaded(state(20, 10, window), World::single());
        assert_eq!(cursor.state(), state(20, 10, None));
        assert_eq!(bounds(&begin(&mut cursor)), (20, 30));
    }
}

#[test]
fn a_rest_too_small_for_the_ranks_is_passed_over_without_moving() {
    let saved = state(8, 10, Some((0, 10)));
    let mut dropping = loaded(saved, world(1, 3, Remainder::Drop));
    assert_eq!(dropping.state(), saved);
    assert_eq!(bounds(&begin(&mut dropping)), (8, 17));
    assert_eq!(dropping.state(), state(8, 10, Some((8, 18))));
    assert_eq!(bounds(&begin(&mut loaded(saved, world(1, 3, Remainder::Extend)))), (8, 11));
    // Rank 2 has nothing in it, but the others have: it waits with them for the next window.
    let mut uneven = loaded(saved, world(2, 3, Remainder::Uneven));
    let rest = begin(&mut uneven);
    assert_eq!((bounds(&rest), rest.window().count()), ((8, 10), 0));
    assert_eq!(uneven.state(), saved);
    rest.finish();
    assert_eq!(uneven.state(), state(10, 10, None));
}

#[test]
fn a_rest_shorter_than_a_full_batch_is_passed_over_where_short_batches_are_left_out() {
    let saved = state(7, 10, Some((0, 10)));
    // (rank, ranks, rule), batch size, and the window that the next iterator delivers.
    for (of, batch_size, expected) in [
        ((0, 1, Remainder::Extend), 3, (7, 10)),
        ((0, 1, Remainder::Extend), 4, (10, 20)),
        ((1, 2, Remainder::Extend), 2, (7, 11)),
        ((1, 2, Remainder::Extend), 3, (11, 21)),
        ((1, 2, Remainder::Drop), 2, (9, 19)),
        ((0, 4, Remainder::Drop), 1, (7, 15)),
        // Rank 1 has no full batch of it, but rank 0 has.
        ((1, 2, Remainder::Uneven), 2, (7, 10)),
        ((1, 2, Remainder::Uneven), 3, (10, 20)),
    ] {
        let mut cursor = loaded(saved, world(of.0, of.1, of.2));
        let ticket = cursor.ticket().in_full_batches(batch_size);
        assert_eq!(cursor.state_of(&ticket), saved);
        let progress = cursor.reserve(&ticket).unwrap();
        assert_eq!(bounds(&progress), expected, "{of:?} {batch_size}");
        let is_rest = expected.0 == 7 && of.1 != 4;
        let whole = if is_rest { (0, 10) } else { (expected.0, expected.0 + 10) };
        assert_eq!(cursor.state(), state(expected.0, 10, Some(whole)));
    }
    // A whole window is never passed over, however long the batch is.
    let mut whole = cursor(3);
    let ticket = whole.ticket().in_full_batches(64);
    assert_eq!(bounds(&whole.reserve(&ticket).unwrap()), (0, 3));
}

#[test]
fn an_epoch_length_concerns_later_windows_alone() {
    let mut cursor = loaded(state(13, 10, Some((10, 20))), World::single());
    let before = cursor.ticket();
    cursor.set_epoch_len(4).unwrap();
    assert_eq!(cursor.state(), state(13, 4, Some((10, 20))));
    let rest = begin(&mut cursor);
    rest.advance(1);
    assert_eq!(cursor.state(), state(14, 4, Some((10, 20))), "later epochs have the new length after a restart too");
    assert_eq!(bounds(&cursor.reserve(&before).unwrap()), (20, 30), "made with the old length");
    assert_eq!(bounds(&begin(&mut cursor)), (30, 34));
}

#[test]
fn another_table_ends_what_was_running() {
    for reset in [true, false] {
        let mut cursor = cursor(10);
        let running = begin(&mut cursor);
        running.advance(3);
        let waiting = cursor.ticket();
        cursor.replace_population(7, reset).unwrap();
        let start = if reset { 0 } else { 10 };
        assert_eq!(cursor.state(), state(start, 7, None));
        // What was made before keeps its own stream and leaves the dataset alone.
        assert_eq!(cursor.state_of(&waiting), state(10, 10, None));
        let late = cursor.reserve(&waiting).unwrap();
        assert_eq!(bounds(&late), (10, 20));
        running.advance(1);
        late.advance(2);
        assert_eq!(running.state(), state(4, 10, Some((0, 10))));
        assert_eq!(late.state(), state(12, 10, Some((10, 20))));
        assert_eq!(cursor.state(), state(start, 7, None));
        assert_eq!(bounds(&begin(&mut cursor)), (start, start + 7));
    }
}

#[test]
fn another_table_ends_a_loaded_rest_for_all_but_the_iterators_made_before() {
    let mut cursor = loaded(state(13, 10, Some((10, 20))), World::single());
    let waiting = cursor.ticket();
    cursor.replace_population(7, false).unwrap();
    assert_eq!(cursor.state(), state(13, 7, None));
    assert_eq!(bounds(&cursor.reserve(&waiting).unwrap()), (13, 20));
    assert_eq!(bounds(&begin(&mut cursor)), (13, 20));
    assert_eq!(cursor.state(), state(13, 7, Some((13, 20))));
}

#[test]
fn loading_after_another_table_is_no_matter_of_older_iterators() {
    let mut cursor = cursor(10);
    let old = cursor.ticket();
    cursor.replace_population(10, true).unwrap();
    cursor.load(state(13, 10, Some((10, 20)))).unwrap();
    assert_eq!(bounds(&cursor.reserve(&old).unwrap()), (0, 10));
    assert_eq!(bounds(&begin(&mut cursor)), (13, 20));
}

#[test]
fn a_view_starts_where_the_dataset_stands_and_goes_its_own_way() {
    let mut whole = cursor(10);
    begin(&mut whole).advance(3);
    let mut view = whole.shard(world(1, 4, Remainder::Extend)).unwrap();
    assert_eq!(view.state(), state(10, 10, None));
    assert_eq!((view.epoch_len(), view.len_of_rank()), (10, 3));
    assert_eq!(bounds(&begin(&mut view)), (10, 22));
    assert_eq!(whole.position(), Position(10));
    view.set_epoch_len(4).unwrap();
    assert_eq!((view.len_of_rank(), whole.epoch_len()), (1, 10));
}

#[test]
fn a_view_is_not_divided_again() {
    let view = cursor(10).shard(world(0, 1, Remainder::Extend)).unwrap();
    assert!(view.is_view());
    let error = view.shard(world(0, 2, Remainder::Extend)).unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error}");
    assert!(matches!(view.ticket_for(world(0, 2, Remainder::Extend)), Err(Error::Config { .. })));
    assert!(Cursor::new(10, world(1, 2, Remainder::Extend)).unwrap().shard(World::single()).is_err());
}

#[test]
fn an_adapter_takes_a_ranks_share_of_the_dataset_itself() {
    let mut cursor = cursor(10);
    let ticket = cursor.ticket_for(world(2, 4, Remainder::Extend)).unwrap();
    let progress = cursor.reserve(&ticket).unwrap();
    assert_eq!((bounds(&progress), progress.window().count()), ((0, 12), 3));
    progress.advance(2);
    assert_eq!(cursor.state(), state(8, 10, Some((0, 10))));
    assert_eq!(cursor.position(), Position(12));
}

#[test]
fn fewer_draws_than_ranks_are_refused_before_anything_changes() {
    let dropping = world(0, 4, Remainder::Drop);
    assert!(matches!(Cursor::new(3, dropping), Err(Error::Config { .. })));
    assert!(matches!(Cursor::new(0, World::single()), Err(Error::Config { .. })));
    assert!(matches!(cursor(3).shard(dropping), Err(Error::Config { .. })));
    assert!(matches!(cursor(3).ticket_for(dropping), Err(Error::Config { .. })));
    let mut view = cursor(10).shard(dropping).unwrap();
    begin(&mut view).advance(1);
    let before = view.state();
    assert!(matches!(view.set_epoch_len(3), Err(Error::Config { .. })));
    assert!(matches!(view.set_epoch_len(0), Err(Error::Config { .. })));
    assert!(matches!(view.replace_population(3, true), Err(Error::Config { .. })));
    assert!(matches!(view.load(state(0, 3, None)), Err(Error::StateMismatch { field: "epoch_len", .. })));
    assert_eq!(view.state(), before);
}

#[test]
fn a_state_that_cannot_be_is_refused_with_its_field_before_anything_changes() {
    let mut cursor = cursor(10);
    begin(&mut cursor).advance(4);
    let before = cursor.state();
    for (bad, expected) in [
        (state(0, 0, None), "epoch_len"),
        (state(5, 10, Some((6, 5))), "window"),
        (state(9, 10, Some((10, 20))), "position"),
        (state(21, 10, Some((10, 20))), "position"),
    ] {
        let error = cursor.load(bad).unwrap_err();
        assert!(matches!(error, Error::StateMismatch { field, .. } if field == expected), "{error}");
        assert_eq!(cursor.state(), before);
    }
}

#[test]
fn a_window_beyond_the_last_position_leaves_the_cursor_as_it_was() {
    let end = u64::MAX;
    let mut cursor = loaded(state(end - 4, 5, Some((end - 9, end))), World::single());
    let rest = begin(&mut cursor);
    rest.advance(4);
    assert!(matches!(cursor.reserve(&cursor.ticket()), Err(Error::Config { .. })));
    assert_eq!(cursor.state(), state(end, 5, None), "four of the rest, which is consumed");
    // A rest that cannot be dealt stays, for a world that can.
    let saved = state(end - 4, 5, Some((end - 9, end)));
    let mut wide = loaded(saved, world(0, 3, Remainder::Extend));
    assert!(matches!(wide.reserve(&wide.ticket()), Err(Error::Config { .. })));
    assert_eq!((wide.state(), wide.position()), (saved, Position(end - 4)));
}

#[test]
fn a_finished_rank_says_the_end_for_all() {
    let mut view = cursor(10).shard(world(2, 3, Remainder::Uneven)).unwrap();
    let progress = begin(&mut view);
    progress.advance(3);
    assert_eq!(view.state(), state(9, 10, Some((0, 10))), "rank 0 has one more");
    progress.finish();
    progress.advance(1);
    assert_eq!((view.state(), progress.taken()), (state(10, 10, None), 3));
}

#[test]
fn a_short_batch_counts_as_a_whole_one() {
    for rank in 0..3 {
        let mut view = cursor(10).shard(world(rank, 3, Remainder::Uneven)).unwrap();
        let progress = begin(&mut view);
        progress.advance_batch(2, false);
        assert_eq!(view.state(), state(6, 10, Some((0, 10))));
        assert_eq!(progress.state_at(progress.window().taken_by(1, 2, false)), view.state());
        progress.advance_batch(2, false);
        assert_eq!(view.state(), state(10, 10, None), "rank {rank}");
        assert_eq!(progress.state_at(progress.window().taken_by(2, 2, false)), view.state());
    }
}

#[test]
fn the_last_full_batch_moves_to_the_end_where_the_short_one_is_dropped() {
    let mut cursor = cursor(10);
    let progress = begin(&mut cursor);
    for (batches, expected) in [(1, 4), (2, 10)] {
        progress.advance_batch(4, true);
        assert_eq!(progress.position(), Position(expected));
        assert_eq!(progress.state_at(progress.window().taken_by(batches, 4, true)), progress.state());
    }
    assert_eq!(cursor.state(), state(10, 10, None));
    // Where the batches divide the window, the last one but one is no end.
    let progress = begin(&mut cursor);
    for (batches, expected) in [(1, 15), (2, 20)] {
        progress.advance_batch(5, true);
        assert_eq!(progress.position(), Position(expected));
        assert_eq!(progress.state_at(progress.window().taken_by(batches, 5, true)), progress.state());
    }
    // Where no batch is full, nothing was consumed before the end.
    let progress = begin(&mut cursor);
    assert_eq!(progress.state_at(progress.window().taken_by(0, 64, true)), progress.state());
    progress.finish();
    assert_eq!(cursor.state(), state(30, 10, None));
}

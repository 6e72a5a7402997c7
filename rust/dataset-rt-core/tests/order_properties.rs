//! The order keeps its promises for any input: compared with slow, obvious models.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use dataset_rt_core::order::{
    Cursor, CursorState, Mode, PassCache, Permutation, Progress, Remainder, Sampler, Ticket, Weights, Window, World,
    replacement_point,
};
use dataset_rt_core::{Error, Position};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;

/// Any positive finite double: all exponents, subnormals included, equally often.
fn any_weight() -> impl Strategy<Value = f64> {
    let any_exponent = (0_u64..0x7FF, 0_u64..1 << 52).prop_map(|(exponent, fraction)| (exponent << 52) | fraction);
    let near_powers = (-1074_i32..1024, -2_i64..3)
        .prop_map(|(exponent, ulps)| power_of_two(exponent).to_bits().saturating_add_signed(ulps));
    let subnormal = (0_u32..52, 0_u64..4).prop_map(|(exponent, low)| (1 << exponent) | low);
    prop_oneof![any_exponent, near_powers, subnormal]
        .prop_map(f64::from_bits)
        .prop_filter("positive and finite", |weight| *weight > 0.0 && weight.is_finite())
}

/// Weights as users have them beside those that hardly fit one table.
fn any_weights() -> impl Strategy<Value = Vec<f64>> {
    let alike = (any_weight(), vec(1_u8..5, 1..60))
        .prop_map(|(unit, factors)| factors.into_iter().map(|factor| unit / 8.0 * f64::from(factor)).collect());
    let skewed = (vec(1e-6..1.0, 1..200), 1e3..1e15, any::<prop::sample::Index>()).prop_map(
        |(mut weights, heavy, index): (Vec<f64>, f64, prop::sample::Index)| {
            let row = index.index(weights.len());
            weights[row] = heavy;
            weights
        },
    );
    prop_oneof![vec(any_weight(), 1..60), vec(0.001..1000.0, 1..300), alike, skewed]
        .prop_filter("positive", |weights: &Vec<f64>| weights.iter().all(|weight| *weight > 0.0 && weight.is_finite()))
}

/// Two to the given power, from -1074 to 1023, by repeated exact doubling or halving.
fn power_of_two(exponent: i32) -> f64 {
    let factor = if exponent < 0 { 0.5 } else { 2.0 };
    (0..exponent.abs()).fold(1.0, |power, _| power * factor)
}

/// The exponent of a double, by repeated exact doubling or halving; and the double moved into [1, 2).
fn normalised(mut value: f64) -> (f64, i32) {
    let mut exponent = 0;
    while value >= 2.0 {
        value /= 2.0;
        exponent += 1;
    }
    while value < 1.0 {
        value *= 2.0;
        exponent -= 1;
    }
    (value, exponent)
}

/// The integer weights, in the hardware's floating-point arithmetic.
fn integer_weights_by_the_book(weights: &[f64]) -> Vec<u64> {
    if weights.iter().all(|weight| *weight == weights[0]) {
        return vec![1; weights.len()];
    }
    let (_, largest) = normalised(weights.iter().copied().fold(0.0, f64::max));
    let scaled: Vec<f64> = weights
        .iter()
        .map(|weight| {
            let (fraction, exponent) = normalised(*weight);
            // In two steps, the first of which is exact, so that only the second one rounds.
            let exponent = exponent - largest;
            let first = (exponent / 2).max(-1000);
            fraction * power_of_two(first) * power_of_two((exponent - first).max(-1074))
        })
        .collect();
    let mut sum = 0.0;
    for scaled in &scaled {
        sum += scaled;
    }
    let (_, exponent) = normalised(sum);
    let factor = power_of_two(61 - exponent);
    #[expect(clippy::cast_possible_truncation, reason = "the floor of a double below 2^62")]
    let integer = |scaled: &f64| (scaled * factor).floor() as u64;
    scaled.iter().map(|scaled| integer(scaled).max(1)).collect()
}

/// The row under a point, by walking along the table.
fn row_by_walking(integers: &[u64], point: u64) -> u64 {
    let mut total = 0;
    for (row, integer) in (0..).zip(integers) {
        total += integer;
        if point < total {
            return row;
        }
    }
    unreachable!("the point is below the total")
}

fn any_remainder() -> impl Strategy<Value = Remainder> {
    prop_oneof![Just(Remainder::Extend), Just(Remainder::Drop), Just(Remainder::Uneven)]
}

/// What each rank takes of a window, by dealing like cards.
fn deal_by_hand(start: u64, length: u64, size: u64, remainder: Remainder) -> Vec<Vec<u64>> {
    let mut hands = vec![Vec::new(); usize::try_from(size).unwrap()];
    let mut dealt = 0;
    loop {
        let more = match remainder {
            Remainder::Uneven => dealt < length,
            Remainder::Extend => dealt < length || !dealt.is_multiple_of(size),
            Remainder::Drop => !dealt.is_multiple_of(size) || length - dealt >= size,
        };
        if !more {
            return hands;
        }
        hands[usize::try_from(dealt % size).unwrap()].push(start + dealt);
        dealt += 1;
    }
}

proptest! {
    #[test]
    fn integer_weights_agree_with_the_floating_point_definition(weights in any_weights()) {
        let built = Weights::build(weights.len(), |row| weights[row]).unwrap();
        let expected = integer_weights_by_the_book(&weights);
        let found: Vec<u64> = (0..built.rows()).map(|row| built.integer_weight(row)).collect();
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(built.total(), expected.iter().sum::<u64>());
        prop_assert!(built.total() < 1 << 63);
        prop_assert_eq!(built.integer_weight(built.rows()), 0);
        prop_assert!(built.bytes() <= 12 * weights.len() + 4);
    }

    #[test]
    fn the_guided_search_finds_what_walking_finds(weights in any_weights(), words in vec(any::<u64>(), 200)) {
        let built = Weights::build(weights.len(), |row| weights[row]).unwrap();
        let integers = integer_weights_by_the_book(&weights);
        let mut points: Vec<u64> = words.into_iter().map(|word| word % built.total()).collect();
        let mut total = 0;
        for integer in &integers {
            // Both sides of each border.
            points.push(total);
            total += integer;
            points.push(total - 1);
        }
        let mut at_once = points.clone();
        built.rows_under(&mut at_once);
        for (point, row) in points.into_iter().zip(at_once) {
            prop_assert_eq!(built.row(point), row_by_walking(&integers, point), "point {}", point);
            prop_assert_eq!(row, built.row(point));
        }
    }

    #[test]
    fn a_common_factor_changes_no_draw(weights in vec(0.001..1000.0, 1..50), exponent in -900_i32..900) {
        let factor = power_of_two(exponent);
        let plain = Weights::build(weights.len(), |row| weights[row]).unwrap();
        let scaled = Weights::build(weights.len(), |row| weights[row] * factor).unwrap();
        prop_assert_eq!(plain.total(), scaled.total());
        for row in 0..plain.rows() {
            prop_assert_eq!(plain.integer_weight(row), scaled.integer_weight(row));
        }
    }

    #[test]
    fn points_are_the_rounded_down_product(seed: u64, k: u64, total in 1_u64..1 << 63) {
        // Long multiplication by 32-bit digits.
        let [high, low, _, _] = dataset_rt_core::order::philox4x64_10([k, 0, 0, 0], [seed, 1]);
        let digits = [low & 0xFFFF_FFFF, low >> 32, high & 0xFFFF_FFFF, high >> 32];
        let mut product = [0_u64; 6];
        for (place, digit) in digits.into_iter().enumerate() {
            for (offset, factor) in [total & 0xFFFF_FFFF, total >> 32].into_iter().enumerate() {
                let mut carry = digit * factor;
                for word in &mut product[place + offset..] {
                    let sum = *word + (carry & 0xFFFF_FFFF);
                    *word = sum & 0xFFFF_FFFF;
                    carry = (carry >> 32) + (sum >> 32);
                }
            }
        }
        let point = replacement_point(seed, Position(k), total);
        prop_assert_eq!(point, product[4] | (product[5] << 32));
        prop_assert!(point < total);
    }

    #[test]
    fn filling_gives_the_draws_one_by_one(
        weights in vec(0.5..2.0, 1..100), seed: u64, first: u64, step in 1_u64..5, count in 0_usize..300, mode in 0..4,
    ) {
        let equal = Weights::equal(weights.len() as u64).unwrap();
        let unequal = Weights::build(weights.len(), |row| weights[row]).unwrap();
        let sampler = match mode {
            0 => Sampler::new(Mode::Ordered, seed, unequal),
            1 => Sampler::new(Mode::Replacement, seed, unequal),
            2 => Sampler::new(Mode::Replacement, seed, equal),
            _ => Sampler::new(Mode::Permutation, seed, equal),
        }.unwrap();
        let first = first.min(u64::MAX - step * count as u64);
        let mut filled = vec![u64::MAX; count];
        sampler.fill(Position(first), step, &mut PassCache::new(), &mut filled);
        for (index, row) in (0..).zip(filled) {
            prop_assert_eq!(row, sampler.row(Position(first + index * step), &mut PassCache::new()));
            prop_assert!(row < sampler.rows());
        }
    }

    #[test]
    fn small_passes_are_bijections(rows in 1_u64..2000, seed: u64, pass in 0_u64..1 << 40) {
        every_row_comes_once(rows, seed, pass);
    }

    #[test]
    fn ranks_interleaved_are_the_single_stream(
        start in 0_u64..1000, length in 1_u64..200, size in 1_u64..12, remainder in any_remainder(),
    ) {
        let hands = deal_by_hand(start, length, size, remainder);
        let mut together: Vec<u64> = hands.iter().flatten().copied().collect();
        together.sort_unstable();
        prop_assert_eq!(&together, &(start..start + together.len() as u64).collect::<Vec<_>>());
        for (rank, hand) in (0..).zip(&hands) {
            let world = World::new(rank, size, remainder).unwrap();
            let window = Window::deal(Position(start), length, world).unwrap();
            let taken: Vec<u64> = (0..window.count()).map(|index| window.position(index).0).collect();
            prop_assert_eq!(&taken, hand);
            prop_assert_eq!(window.count(), world.count(length));
            prop_assert_eq!(world.most(length), hands[0].len() as u64);
            prop_assert_eq!(window.dealt_end().0, start + together.len() as u64);
            prop_assert_eq!(world.stride(length), together.len() as u64);
            prop_assert_eq!(world.check_epoch_len(length).is_err(), together.is_empty());
        }
    }

    #[test]
    fn interrupted_runs_cover_the_stream_exactly_once(
        epoch_len in 1_u64..25,
        links in vec((1_u64..9, any_remainder(), 1_u64..5, 0_u64..40, prop::option::of(1_u64..25)), 1..12),
    ) {
        let mut model = Model { position: 0, epoch_len, window: None };
        let mut consumed: Vec<u64> = Vec::new();
        let mut state = Cursor::new(epoch_len, World::single()).unwrap().state();
        for (size, remainder, batch, batches, new_epoch_len) in links {
            prop_assert_eq!(state, model.state());
            // Fewer draws than ranks cannot be had with what they do not divide left out.
            let size = if remainder == Remainder::Drop { size.min(model.epoch_len) } else { size };
            let mut ranks: Vec<Rank> = (0..size).map(|rank| Rank::resume(state, rank, size, remainder)).collect();
            for rank in &ranks {
                prop_assert_eq!(rank.cursor.state(), state, "nothing consumed, nothing changed");
                prop_assert_eq!(rank.cursor.position().0, model.position);
            }
            for _ in 0..batches {
                let hands = model.next_batch(size, remainder, batch);
                for (rank, hand) in ranks.iter_mut().zip(&hands) {
                    prop_assert_eq!(&rank.next_batch(batch), hand);
                    consumed.extend(hand);
                }
            }
            if let Some(new_epoch_len) = new_epoch_len.filter(|length| remainder != Remainder::Drop || *length >= size) {
                model.epoch_len = new_epoch_len;
                for rank in &mut ranks {
                    rank.cursor.set_epoch_len(new_epoch_len).unwrap();
                }
            }
            state = ranks[0].cursor.state();
            for rank in &ranks {
                prop_assert!(remainder == Remainder::Uneven || rank.cursor.state() == state, "ranks say the same");
            }
            consumed.sort_unstable();
            prop_assert_eq!(&consumed, &(0..state.position.0).collect::<Vec<_>>());
        }
    }
}

#[test]
fn large_passes_are_bijections() {
    for (rows, pass) in
        [(1, 3), (2, 0), (65_535, 1), (65_536, 7), (65_537, 0), (65_537, 1), (100_003, u64::from(u32::MAX))]
    {
        every_row_comes_once(rows, 42, pass);
    }
}

#[test]
fn one_cache_serves_any_number_of_permutations() {
    let mut shared = PassCache::new();
    for k in 0..300 {
        for (rows, seed) in [(10, 1), (10, 2), (11, 1), (70_000, 1), (70_000, 2), (70_001, 1)] {
            let permutation = Permutation::new(rows, seed).unwrap();
            let alone = permutation.row(Position(k), &mut PassCache::new());
            assert_eq!(permutation.row(Position(k), &mut shared), alone, "draw {k} of {rows} rows, seed {seed}");
        }
    }
}

#[test]
fn passes_at_the_end_of_the_stream_can_be_named() {
    for rows in [1, 10, 65_537, u64::from(u32::MAX) + 2, 1 << 63, u64::MAX] {
        let permutation = Permutation::new(rows, 1).unwrap();
        assert!(permutation.row(Position(u64::MAX), &mut PassCache::new()) < rows);
    }
}

#[test]
fn weights_that_are_not_positive_and_finite_are_refused_with_row_and_value() {
    for bad in [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for at in [0, 1, 4] {
            let error = Weights::build(5, |row| if row >= at { bad } else { 1.0 }).unwrap_err();
            assert!(matches!(error, Error::Metadata { .. }));
            assert_eq!(error.to_string(), format!("row {at}: weight must be positive and finite, got {bad}"));
        }
    }
    assert!(matches!(Weights::build(0, |_| 1.0), Err(Error::Metadata { .. })));
    assert!(matches!(Weights::equal(0), Err(Error::Metadata { .. })));
    assert!(matches!(Permutation::new(0, 1), Err(Error::Metadata { .. })));
}

#[test]
fn equal_weights_take_no_memory_and_draw_alike() {
    for weight in [1.0, 2.0, 1e-300, f64::MAX, f64::from_bits(1)] {
        let weights = Weights::build(1000, |_| weight).unwrap();
        assert!(weights.is_equal());
        assert_eq!((weights.bytes(), weights.total()), (0, 1000));
    }
}

#[test]
fn every_row_beyond_two_to_the_24_can_be_drawn() {
    let rows = (1 << 24) + 5;
    let weights = Weights::build(rows, |row| if row % 2 == 0 { 1e-12 } else { 1e12 }).unwrap();
    assert!(weights.bytes() <= 12 * rows + 4);
    let mut point = 0;
    for row in 0..rows as u64 {
        let integer = weights.integer_weight(row);
        assert_eq!((weights.row(point), weights.row(point + integer - 1)), (row, row));
        point += integer;
    }
    assert_eq!(point, weights.total());
}

#[test]
fn unequal_weights_are_refused_without_replacement() {
    let weights = || Weights::build(3, |row| if row == 1 { 2.0 } else { 1.0 }).unwrap();
    let error = Sampler::new(Mode::Permutation, 0, weights()).unwrap_err();
    assert!(matches!(error, Error::Config { .. }));
    assert!(error.to_string().contains("weight") && error.to_string().contains("replacement=True"), "{error}");
    assert!(Sampler::new(Mode::Ordered, 0, weights()).is_ok());
    assert!(Sampler::new(Mode::Replacement, 0, weights()).is_ok());
}

#[test]
fn names_lead_back_to_what_they_name() {
    for mode in [Mode::Ordered, Mode::Replacement, Mode::Permutation] {
        assert_eq!(Mode::from_name(mode.name()).unwrap(), mode);
    }
    for remainder in [Remainder::Extend, Remainder::Drop, Remainder::Uneven] {
        assert_eq!(Remainder::from_name(remainder.name()).unwrap(), remainder);
    }
    assert_eq!(
        Remainder::from_name("pad").unwrap_err().to_string(),
        r#"remainder must be "extend", "drop" or "uneven", got "pad""#
    );
    assert!(matches!(Mode::from_name("Ordered"), Err(Error::Config { .. })));
}

#[test]
fn worlds_that_cannot_be_are_refused() {
    assert_eq!(World::new(4, 4, Remainder::Extend).unwrap_err().to_string(), "rank must be in [0, 4), got 4");
    assert_eq!(World::new(0, 0, Remainder::Extend).unwrap_err().to_string(), "world_size must be at least 1, got 0");
}

#[test]
fn windows_beyond_the_last_position_are_refused() {
    let end = |start: u64, length, size, remainder| {
        Window::deal(Position(start), length, World::new(size - 1, size, remainder).unwrap())
            .map(|window| window.dealt_end().0)
    };
    assert_eq!(end(u64::MAX - 9, 9, 3, Remainder::Extend).unwrap(), u64::MAX);
    assert!(matches!(end(u64::MAX - 9, 10, 1, Remainder::Extend), Err(Error::Config { .. })));
    assert!(matches!(end(u64::MAX - 9, 9, 2, Remainder::Extend), Err(Error::Config { .. })), "what is dealt counts");
    assert!(matches!(end(u64::MAX - 9, 11, 10, Remainder::Drop), Err(Error::Config { .. })), "so does the nominal end");
    assert!(matches!(end(0, u64::MAX, u64::MAX - 1, Remainder::Extend), Err(Error::Config { .. })));
    assert_eq!(end(u64::MAX - 9, 9, 2, Remainder::Uneven).unwrap(), u64::MAX);
}

/// Each row stands at one place of the pass, and one cache serves places in any order.
fn every_row_comes_once(rows: u64, seed: u64, pass: u64) {
    let permutation = Permutation::new(rows, seed).unwrap();
    let mut cache = PassCache::new();
    let mut seen = vec![false; usize::try_from(rows).unwrap()];
    for place in (0..rows).rev() {
        let row = permutation.row(Position(pass * rows + place), &mut cache);
        let seen = &mut seen[usize::try_from(row).unwrap()];
        assert!(!*seen, "row {row} comes twice in pass {pass} over {rows} rows");
        *seen = true;
    }
}

/// One process of a distributed run, which takes batch after batch through as many epochs as it is asked for.
struct Rank {
    cursor: Cursor,
    /// The iterator made, and its window once it was asked for its first batch.
    iterator: (Ticket, Option<(Arc<Progress>, u64)>),
}

impl Rank {
    fn resume(state: CursorState, rank: u64, size: u64, remainder: Remainder) -> Self {
        let world = World::new(rank, size, remainder).unwrap();
        // Loaded before or after the view is made: the rest goes along.
        let mut whole = Cursor::new(1 << 40, World::single()).unwrap();
        let cursor = if rank.is_multiple_of(2) {
            whole.load(state).unwrap();
            whole.shard(world).unwrap()
        } else {
            let mut view = whole.shard(world).unwrap();
            view.load(state).unwrap();
            view
        };
        let ticket = cursor.ticket();
        Self { cursor, iterator: (ticket, None) }
    }

    /// The next batch that is not the end of an epoch; an empty one where this rank has no more but others do.
    fn next_batch(&mut self, batch: u64) -> Vec<u64> {
        if let (_, Some((progress, _))) = &self.iterator
            && progress.is_consumed()
        {
            self.iterator = (self.cursor.ticket(), None);
        }
        let (ticket, started) = &mut self.iterator;
        let (progress, delivered) = started.get_or_insert_with(|| (self.cursor.reserve(ticket).unwrap(), 0));
        let window = progress.window();
        let end = (*delivered + batch).min(window.count());
        let positions: Vec<u64> = (*delivered..end).map(|index| window.position(index).0).collect();
        *delivered = end;
        if positions.is_empty() {
            progress.finish();
        } else {
            progress.advance(batch);
        }
        positions
    }
}

/// The stream as it should be, in hands of cards.
struct Model {
    position: u64,
    epoch_len: u64,
    /// Start and end of the window that the position is in.
    window: Option<(u64, u64)>,
}

impl Model {
    fn state(&self) -> CursorState {
        CursorState { position: Position(self.position), epoch_len: self.epoch_len, window: self.window }
    }

    fn next_batch(&mut self, size: u64, remainder: Remainder, batch: u64) -> Vec<Vec<u64>> {
        let deal = |position, (_, end)| deal_by_hand(position, end - position, size, remainder);
        let mut window = self.window.unwrap_or((self.position, self.position + self.epoch_len));
        let mut hands = deal(self.position, window);
        if hands.iter().all(Vec::is_empty) {
            // An interrupted window, too little of which is left.
            window = (self.position, self.position + self.epoch_len);
            hands = deal(self.position, window);
        }
        let left: usize = hands.iter().map(Vec::len).sum();
        for hand in &mut hands {
            hand.truncate(usize::try_from(batch).unwrap());
        }
        let taken: usize = hands.iter().map(Vec::len).sum();
        self.position += taken as u64;
        self.window = (taken < left).then_some(window);
        hands
    }
}

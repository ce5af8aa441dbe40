//! Chance that forgets nothing: all cards come once before any comes again.

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

pub(super) struct Deck<T> {
    cards: Vec<T>,
    left: Vec<T>,
}

impl<T: Copy> Deck<T> {
    pub(super) fn of(cards: &[T]) -> Self {
        Self { cards: cards.to_vec(), left: Vec::new() }
    }

    pub(super) fn draw(&mut self, dice: &mut StdRng) -> T {
        if self.left.is_empty() {
            self.left.clone_from(&self.cards);
            self.left.shuffle(dice);
        }
        self.left.pop().expect("a deck has cards")
    }
}

#[test]
fn all_cards_come_in_turn_and_in_another_order() {
    let mut dice: StdRng = rand::SeedableRng::seed_from_u64(7);
    let cards: Vec<u32> = (0..13).collect();
    let mut deck = Deck::of(&cards);
    let mut draw = || -> Vec<u32> { cards.iter().map(|_| deck.draw(&mut dice)).collect() };
    let rounds = [draw(), draw()];
    assert_ne!(rounds[0], rounds[1]);
    for mut round in rounds {
        round.sort_unstable();
        assert_eq!(round, cards);
    }
}

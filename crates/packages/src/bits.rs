//! Sets of small numbers, as bits.

/// A square of bits: for each of `size` members, a set of members.
#[derive(Clone, Debug)]
pub(crate) struct BitMatrix {
    words_per_row: usize,
    words: Vec<u64>,
}

impl BitMatrix {
    pub(crate) fn new(size: usize) -> BitMatrix {
        let words_per_row = size.div_ceil(64);
        BitMatrix { words_per_row, words: vec![0; words_per_row * size] }
    }

    pub(crate) fn row(&self, row: usize) -> &[u64] {
        &self.words[row * self.words_per_row..][..self.words_per_row]
    }

    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [u64] {
        &mut self.words[row * self.words_per_row..][..self.words_per_row]
    }

    #[cfg(test)]
    pub(crate) fn has(&self, row: usize, member: usize) -> bool {
        self.row(row)[member / 64] >> (member % 64) & 1 == 1
    }

    pub(crate) fn insert(&mut self, row: usize, member: usize) {
        insert(self.row_mut(row), member);
    }

    /// Takes everything of an earlier row into a later one.
    pub(crate) fn merge(&mut self, later: usize, earlier: usize) {
        assert!(earlier < later, "rows are merged in their order");
        let (before, behind) = self.words.split_at_mut(later * self.words_per_row);
        let from = &before[earlier * self.words_per_row..][..self.words_per_row];
        for (word, other) in behind.iter_mut().zip(from) {
            *word |= other;
        }
    }
}

pub(crate) fn insert(words: &mut [u64], member: usize) {
    words[member / 64] |= 1 << (member % 64);
}

/// The members of one word, which is the `index`th of its set.
pub(crate) fn members(index: usize, mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(index * 64 + bit)
    })
}

/// The members of one word that are less than `end`.
pub(crate) fn below(index: usize, word: u64, end: usize) -> u64 {
    match end.saturating_sub(index * 64) {
        0 => 0,
        64.. => word,
        count => word & ((1 << count) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_in_and_nothing_else() {
        let mut matrix = BitMatrix::new(130);
        for member in [0, 63, 64, 129] {
            matrix.insert(3, member);
        }
        matrix.merge(7, 3);
        let found: Vec<usize> =
            matrix.row(7).iter().enumerate().flat_map(|(index, word)| members(index, *word)).collect();
        assert_eq!(found, [0, 63, 64, 129]);
        assert!(matrix.has(3, 129) && !matrix.has(3, 128) && !matrix.has(4, 0));
        let found: Vec<usize> =
            (0..3).flat_map(|index| members(index, below(index, matrix.row(7)[index], 64))).collect();
        assert_eq!(found, [0, 63]);
    }
}

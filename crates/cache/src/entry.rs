//! A kept answer. It owns its bytes: exact copies, since a view would keep what it looks into: a batch of other requests' rows, a
//! client's body with what that was charged, or memory of ONNX Runtime. Hits are views of the copies.

use bytes::Bytes;
use memory::reclaim;
use smallvec::SmallVec;
use tensor::{DataType, Error, Result, Shape, allowance};

/// Outputs of a request by their indices in the model's configuration, ascending. Those that were asked for: a model may leave out
/// some of them, and an answer without them is complete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked(SmallVec<[u16; 4]>);

impl Asked {
    /// These outputs; the indices ascend.
    pub fn new(indices: impl Iterator<Item = u16>) -> Self {
        Self(indices.collect())
    }

    /// Their indices, ascending.
    pub(crate) fn indices(&self) -> &[u16] {
        &self.0
    }

    /// Whether all of these are among those of `other`.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        let mut rest = other.0.iter();
        self.0.iter().all(|index| rest.any(|other| other == index))
    }

    /// Those of both.
    fn with(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.0.extend(other.0.iter().copied().filter(|&i| !self.contains(i)));
        all.0.sort_unstable();
        all
    }

    fn contains(&self, index: u16) -> bool {
        self.0.binary_search(&index).is_ok()
    }
}

/// One output of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Index in the model's configuration.
    pub index: u16,
    /// Element type.
    pub datatype: DataType,
    /// Full shape, batch dimension included.
    pub shape: Shape,
    /// Contents; a view.
    pub data: Bytes,
}

/// What a model answered.
#[derive(Debug, PartialEq)]
pub struct Entry {
    asked: Asked,
    outputs: SmallVec<[Output; 2]>,
}

impl Entry {
    /// An answer whose bytes are its own already.
    pub(crate) fn of(asked: Asked, outputs: SmallVec<[Output; 2]>) -> Self {
        Self { asked, outputs }
    }

    /// What was asked for when it was made.
    pub(crate) fn asked(&self) -> &Asked {
        &self.asked
    }

    /// Those of the outputs the model gave, ascending. There may be more than a request asks for.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Whether a request that asks for these finds its answer here.
    pub fn answers(&self, asked: &Asked) -> bool {
        asked.is_within(&self.asked)
    }

    /// Copies of these outputs.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when the system gives no memory.
    pub(crate) fn copied(asked: &Asked, outputs: &[Output]) -> Result<Self> {
        let copy = |o: &Output| Ok(Output { data: owned(&o.data)?, ..o.clone() });
        let outputs = outputs.iter().map(copy).collect::<Result<_, Error>>()?;
        Ok(Self { asked: asked.clone(), outputs })
    }

    /// This answer, and what an older one for the same request has besides.
    pub(crate) fn joined(&self, older: &Self) -> Self {
        let extra = older.outputs.iter().filter(|o| !self.asked.contains(o.index)).cloned();
        let mut outputs: SmallVec<[Output; 2]> = self.outputs.iter().cloned().chain(extra).collect();
        outputs.sort_unstable_by_key(|o| o.index);
        Self { asked: self.asked.with(&older.asked), outputs }
    }

    /// Bytes it takes, wherever they are.
    pub(crate) fn bytes(&self) -> usize {
        Self::bytes_of(&self.asked, &self.outputs)
    }

    /// Bytes a copy of these outputs takes.
    pub(crate) fn bytes_of(asked: &Asked, outputs: &[Output]) -> usize {
        let data: usize = outputs.iter().map(|o| o.data.len() + o.shape.len() * 8 + OUTPUT_BYTES).sum();
        data + asked.0.len() * 2 + ENTRY_BYTES
    }
}

/// What an output takes besides its data and shape: itself, the counted owner of its data, and what malloc adds to either.
const OUTPUT_BYTES: usize = size_of::<Output>() + size_of::<Owned>() + 64;

/// What an entry takes besides its outputs: itself, its count, and its places in the table and in the order of use, which may be
/// half empty.
const ENTRY_BYTES: usize = size_of::<Entry>() + 256;

/// Bytes of an entry. Large ones are given back to the system elsewhere: the last view may be dropped by a reactor.
struct Owned(Vec<u8>);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        reclaim::drop_later(bytes.len(), bytes);
    }
}

fn owned(data: &[u8]) -> Result<Bytes> {
    if data.is_empty() {
        return Ok(Bytes::new());
    }
    let mut copy = allowance::unasked(data.len())?;
    copy.extend_from_slice(data);
    Ok(Bytes::from_owner(Owned(copy)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(indices: &[u16]) -> Asked {
        Asked::new(indices.iter().copied())
    }

    fn output(index: u16, data: &[u8]) -> Output {
        Output {
            index,
            datatype: DataType::Uint8,
            shape: Shape::from_slice(&[data.len() as i64]),
            data: data.to_vec().into(),
        }
    }

    #[test]
    fn a_request_is_answered_by_an_entry_with_all_it_asks_for() {
        let entry = Entry::copied(&asked(&[0, 2, 5]), &[output(0, b"a")]).expect("memory");
        for (wanted, answers) in [
            (&[][..], true),
            (&[0], true),
            (&[2, 5], true),
            (&[0, 2, 5], true),
            (&[1], false),
            (&[0, 1], false),
            (&[5, 6], false),
        ] {
            assert_eq!(entry.answers(&asked(wanted)), answers, "{wanted:?}");
        }
    }

    #[test]
    fn a_copy_holds_nothing_but_its_own_bytes() {
        let batch = Bytes::from(vec![7u8; 1 << 20]);
        let row = Output { data: batch.slice(16..32), ..output(0, &[0; 16]) };
        let entry = Entry::copied(&asked(&[0]), &[row]).expect("memory");
        let owner = batch.as_ptr_range();
        assert!(entry.outputs.iter().all(|o| !owner.contains(&o.data.as_ptr()) && o.data[..] == [7; 16]));
        assert!(batch.is_unique(), "nothing looks into the batch any more");
        assert!((16..1024).contains(&entry.bytes()), "{}", entry.bytes());
    }

    #[test]
    fn answers_to_the_same_request_are_joined() {
        let old = Entry::copied(&asked(&[0, 1]), &[output(0, b"old"), output(1, b"one")]).expect("memory");
        let new = Entry::copied(&asked(&[0, 3]), &[output(0, b"new")]).expect("memory");
        let both = new.joined(&old);
        assert_eq!(both.asked, asked(&[0, 1, 3]));
        assert_eq!(both.outputs[..], [output(0, b"new"), output(1, b"one")]);
    }

    #[test]
    fn what_an_entry_takes_is_counted() {
        let large = Entry::copied(&asked(&[0]), &[output(0, &[1; 80_000])]).expect("memory");
        // Triton's own figure for this entry is 80,128 (recorded).
        assert!((80_000..81_000).contains(&large.bytes()), "{}", large.bytes());
        let many: Vec<Output> = (0..1000).map(|i| output(i, b"")).collect();
        let empty = Entry::copied(&asked(&(0..1000).collect::<Vec<_>>()), &many).expect("memory");
        assert!(empty.bytes() > 1000 * size_of::<Output>(), "{}", empty.bytes());
    }
}

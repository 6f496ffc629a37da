//! An entry of the response cache. It owns exact copies of the contents, because a view would keep its whole buffer:
//! the batch, a client's body with its charge, or memory of ONNX Runtime. Hits are views of the copies.

use bytes::Bytes;
use memory::reclaim;
use smallvec::SmallVec;
use tensor::{DataType, Error, Result, Shape, allowance};

/// The requested outputs, as ascending indices in the model's configuration. A model may omit some of them, and a
/// response without them is complete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputSet(SmallVec<[u16; 4]>);

impl OutputSet {
    /// Makes a set of ascending indices.
    pub fn new(indices: impl Iterator<Item = u16>) -> Self {
        Self(indices.collect())
    }

    pub(crate) fn indices(&self) -> &[u16] {
        &self.0
    }

    /// True if this is a subset of `other`.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        let mut rest = other.0.iter();
        self.0.iter().all(|index| rest.any(|other| other == index))
    }

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

/// One output of a response.
#[derive(Debug, Clone, PartialEq)]
pub struct CachedOutput {
    /// Index in the model's configuration.
    pub index: u16,
    /// Datatype.
    pub datatype: DataType,
    /// Full shape, batch dimension included.
    pub shape: Shape,
    /// Contents, as a view.
    pub data: Bytes,
}

/// A stored response.
#[derive(Debug, PartialEq)]
pub struct Entry {
    asked: OutputSet,
    outputs: SmallVec<[CachedOutput; 2]>,
}

impl Entry {
    /// An entry that owns its contents already.
    pub(crate) fn of(asked: OutputSet, outputs: SmallVec<[CachedOutput; 2]>) -> Self {
        Self { asked, outputs }
    }

    pub(crate) fn asked(&self) -> &OutputSet {
        &self.asked
    }

    /// The outputs that the model returned, ascending. There may be more than a request asks for.
    pub fn outputs(&self) -> &[CachedOutput] {
        &self.outputs
    }

    /// True if the entry has all of these outputs.
    pub fn has_outputs(&self, asked: &OutputSet) -> bool {
        asked.is_within(&self.asked)
    }

    /// Copies the outputs.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when the system has no memory.
    pub(crate) fn copied(asked: &OutputSet, outputs: &[CachedOutput]) -> Result<Self> {
        let copy = |o: &CachedOutput| Ok(CachedOutput { data: owned(&o.data)?, ..o.clone() });
        let outputs = outputs.iter().map(copy).collect::<Result<_, Error>>()?;
        Ok(Self { asked: asked.clone(), outputs })
    }

    /// This entry with the additional outputs of an older one for the same request.
    pub(crate) fn joined(&self, older: &Self) -> Self {
        let extra = older.outputs.iter().filter(|o| !self.asked.contains(o.index)).cloned();
        let mut outputs: SmallVec<[CachedOutput; 2]> = self.outputs.iter().cloned().chain(extra).collect();
        outputs.sort_unstable_by_key(|o| o.index);
        Self { asked: self.asked.with(&older.asked), outputs }
    }

    /// Bytes of the entry, all overhead included.
    pub(crate) fn bytes(&self) -> usize {
        Self::bytes_of(&self.asked, &self.outputs)
    }

    pub(crate) fn bytes_of(asked: &OutputSet, outputs: &[CachedOutput]) -> usize {
        let data: usize = outputs.iter().map(|o| o.data.len() + o.shape.len() * 8 + OUTPUT_BYTES).sum();
        data + asked.0.len() * 2 + ENTRY_BYTES
    }
}

/// Bytes of an output besides data and shape: itself, the owner of its data, and the overhead of malloc for both.
const OUTPUT_BYTES: usize = size_of::<CachedOutput>() + size_of::<Owned>() + 64;

/// Bytes of an entry besides its outputs: itself, its reference count, and its share of the table and of the list of
/// nodes, which may be half empty.
const ENTRY_BYTES: usize = size_of::<Entry>() + 256;

/// Contents of an entry. A large one is freed on another thread, because a reactor may drop the last view.
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

    fn asked(indices: &[u16]) -> OutputSet {
        OutputSet::new(indices.iter().copied())
    }

    fn output(index: u16, data: &[u8]) -> CachedOutput {
        CachedOutput {
            index,
            datatype: DataType::Uint8,
            shape: Shape::from_slice(&[data.len() as i64]),
            data: data.to_vec().into(),
        }
    }

    #[test]
    fn an_entry_with_all_requested_outputs_is_a_hit() {
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
            assert_eq!(entry.has_outputs(&asked(wanted)), answers, "{wanted:?}");
        }
    }

    #[test]
    fn a_copy_does_not_keep_the_batch() {
        let batch = Bytes::from(vec![7u8; 1 << 20]);
        let row = CachedOutput { data: batch.slice(16..32), ..output(0, &[0; 16]) };
        let entry = Entry::copied(&asked(&[0]), &[row]).expect("memory");
        let owner = batch.as_ptr_range();
        assert!(entry.outputs.iter().all(|o| !owner.contains(&o.data.as_ptr()) && o.data[..] == [7; 16]));
        assert!(batch.is_unique(), "nothing looks into the batch any more");
        assert!((16..1024).contains(&entry.bytes()), "{}", entry.bytes());
    }

    #[test]
    fn entries_of_the_same_request_are_joined() {
        let old = Entry::copied(&asked(&[0, 1]), &[output(0, b"old"), output(1, b"one")]).expect("memory");
        let new = Entry::copied(&asked(&[0, 3]), &[output(0, b"new")]).expect("memory");
        let both = new.joined(&old);
        assert_eq!(both.asked, asked(&[0, 1, 3]));
        assert_eq!(both.outputs[..], [output(0, b"new"), output(1, b"one")]);
    }

    #[test]
    fn all_bytes_of_an_entry_are_counted() {
        let large = Entry::copied(&asked(&[0]), &[output(0, &[1; 80_000])]).expect("memory");
        // Triton counts 80,128 bytes for this entry (recorded).
        assert!((80_000..81_000).contains(&large.bytes()), "{}", large.bytes());
        let many: Vec<CachedOutput> = (0..1000).map(|i| output(i, b"")).collect();
        let empty = Entry::copied(&asked(&(0..1000).collect::<Vec<_>>()), &many).expect("memory");
        assert!(empty.bytes() > 1000 * size_of::<CachedOutput>(), "{}", empty.bytes());
    }
}

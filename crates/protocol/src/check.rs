//! Checks a request against a model: P 2.9 rows 6 to 21 and C 3.4, in their order and with their texts.
//!
//! Pure and read-only: the backend reshapes, the scheduler checks the rules of sequences and queues.
//!
//! Inputs are checked from the last to the first, which decides the error if several are wrong: the reference keeps
//! them in a hash table that yields the last one first for all practical sizes.

use crate::infer::InferRequest;
use crate::signature::{Checked, InputSpec, Signature};
use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use tensor::strings::{Broken, Lengths};
use tensor::{Data, DataType, Error, Location, Name, Result, Shape, ShapeDisplay, element_count};

/// Advice at the end of the text of row 12, for models that batch.
const BATCH_NOTE: &str = "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be \
prepended to each input shape. If you want to specify the full shape including the batch dim in your input dims \
config, try setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size.";

/// Prints `[request id: 42] `, with `<id_unknown>` for a request without an id.
pub struct IdPrefix<'a>(pub &'a str);

impl fmt::Display for IdPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[request id: {}] ", if self.0.is_empty() { "<id_unknown>" } else { self.0 })
    }
}

/// Like [`IdPrefix`], but reads the request's id only when it is printed.
struct Prefix<'a>(&'a Name);

impl fmt::Display for Prefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        IdPrefix(self.0).fmt(f)
    }
}

/// The error of row 10 for inputs.
pub fn duplicate_input(id: &str, name: &str) -> Error {
    Error::invalid(format!("{}input '{name}' already exists in request", IdPrefix(id)))
}

/// The error of row 10 for outputs.
pub fn duplicate_output(id: &str, name: &str) -> Error {
    Error::invalid(format!("{}output '{name}' already exists in request", IdPrefix(id)))
}

/// A set of names: a list while there are few, so that most requests allocate nothing for it.
pub(crate) struct NameSet<K> {
    few: smallvec::SmallVec<[K; 8]>,
    many: Option<HashSet<K>>,
}

impl<K: Eq + Hash> NameSet<K> {
    pub(crate) fn new() -> Self {
        Self { few: smallvec::SmallVec::new(), many: None }
    }

    /// Returns false if the name is in the set already.
    pub(crate) fn insert(&mut self, name: K) -> bool {
        if self.few.contains(&name) {
            return false;
        }
        if self.few.len() < self.few.inline_size() {
            self.few.push(name);
            return true;
        }
        self.many.get_or_insert_default().insert(name)
    }
}

/// A set of indices of configured tensors: a bit mask below 64 (3 instructions, comparing names takes 30).
#[derive(Default)]
struct IndexSet {
    low: u64,
    high: Option<HashSet<usize>>,
}

impl IndexSet {
    /// Returns false if the index is in the set already.
    #[inline]
    fn insert(&mut self, at: usize) -> bool {
        if at >= u64::BITS as usize {
            return self.high.get_or_insert_default().insert(at);
        }
        let is_new = self.low & 1 << at == 0;
        self.low |= 1 << at;
        is_new
    }
}

/// Index of a name in a configuration. Tries `guess` first: most requests keep the order of the configuration.
#[inline]
fn find<'s>(names: impl ExactSizeIterator<Item = &'s Name> + Clone, guess: usize, name: &Name) -> Option<usize> {
    if names.clone().nth(guess) == Some(name) {
        return Some(guess);
    }
    names.enumerate().find(|(_, known)| *known == name).map(|(at, _)| at)
}

fn index(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

/// Prints `'A','B'`.
struct Quoted<'a, I>(I, std::marker::PhantomData<&'a ()>);

impl<'a, I: Iterator<Item = &'a str> + Clone> fmt::Display for Quoted<'a, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.0.clone().enumerate() {
            write!(f, "{}'{name}'", if i > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

fn quoted<'a, I: Iterator<Item = &'a str> + Clone>(names: I) -> Quoted<'a, I> {
    Quoted(names, std::marker::PhantomData)
}

fn type_name(datatype: Option<DataType>) -> &'static str {
    datatype.map_or("<invalid>", DataType::name)
}

/// Checks row 10 for inputs.
#[cold]
fn check_duplicates(request: &InferRequest) -> Result<()> {
    let mut names = NameSet::new();
    match request.inputs.iter().find(|input| !names.insert(input.name.as_bytes())) {
        Some(twice) => Err(duplicate_input(&request.id, &twice.name)),
        None => Ok(()),
    }
}

/// The type of `Checked::outputs`.
type OutputSelection = smallvec::SmallVec<[(u16, Option<u16>); 4]>;

impl Signature {
    /// Index of a configured input.
    pub fn input_index(&self, name: &Name) -> Option<usize> {
        self.inputs.iter().position(|i| i.name == *name)
    }

    /// Index of a configured output.
    pub fn output_index(&self, name: &Name) -> Option<usize> {
        self.outputs.iter().position(|o| o.name == *name)
    }

    /// True if shapes have a batch dimension.
    pub fn batches(&self) -> bool {
        self.max_batch_size > 0
    }

    /// `dims` as metadata and errors show them: with -1 in front if the model batches (P-021).
    pub fn full_shape(&self, dims: &[i64]) -> Shape {
        let batch: &[i64] = if self.batches() { &[-1] } else { &[] };
        batch.iter().chain(dims).copied().collect()
    }

    /// Checks a request and returns the indices and rows that later steps need.
    ///
    /// # Errors
    /// INVALID_ARG with the texts of P 2.9 rows 6 to 21.
    pub fn check(&self, request: &mut InferRequest) -> Result<Checked> {
        let mut checked = Checked::default();
        let known = self.find_inputs(request, &mut checked);
        if !known {
            // Duplicates are reported before any other error.
            check_duplicates(request)?;
        }
        checked.outputs = self.check_outputs(request)?;
        self.check_count(request)?;
        let prefix = Prefix(&request.id);
        let model = &self.model;

        let mut rows: Option<i64> = None;
        for input in request.inputs.iter().rev() {
            if !known && self.input_index(&input.name).is_none() {
                return Err(Error::invalid(format!("unexpected inference input '{}' for model '{model}'", input.name)));
            }
            if !self.batches() {
                continue;
            }
            let Some(&batch) = input.shape.first() else {
                return Err(Error::invalid(format!(
                    "{prefix}input '{}' has no shape but model requires batch dimension for '{model}'",
                    input.name
                )));
            };
            match rows {
                // In the reference 0 means that the rows are not known yet.
                None | Some(0) => rows = Some(batch),
                Some(r) if r != batch => {
                    return Err(Error::invalid(format!(
                        "{prefix}input '{}' batch size does not match other inputs for '{model}'",
                        input.name
                    )));
                }
                Some(_) => {}
            }
        }
        let rows = rows.unwrap_or(0);
        if rows > i64::from(self.max_batch_size) {
            return Err(Error::invalid(format!(
                "{prefix}inference request batch-size must be <= {} for '{model}'",
                self.max_batch_size
            )));
        }
        checked.rows = u32::try_from(rows).unwrap_or(0);

        let mut cut_string = None;
        for (input, &index) in request.inputs.iter().zip(&checked.inputs).rev() {
            let Some(spec) = self.inputs.get(usize::from(index)) else { continue };
            if input.datatype != Some(spec.datatype) {
                return Err(Error::invalid(format!(
                    "{prefix}inference input '{}' data-type is '{}', but model '{model}' expects '{}'",
                    input.name,
                    type_name(input.datatype),
                    spec.datatype.name()
                )));
            }
            self.check_shape(&prefix, spec, &input.shape)?;
            let dims = input.shape.get(usize::from(self.batches())..).unwrap_or_default();
            let count = element_count(dims).and_then(|n| n.checked_mul(rows.max(1))).unwrap_or(i64::MAX) as u64;
            match spec.datatype.byte_size() {
                Some(size) => {
                    let expected = count.saturating_mul(size as u64);
                    if expected != input.data.len() as u64 {
                        return Err(self.byte_size_error(&prefix, &input.name, expected, input.data.len()));
                    }
                }
                None => {
                    let cut = self.check_strings(&prefix, &input.name, &input.data, count)?;
                    cut_string = cut_string.or(cut);
                }
            }
        }
        // Last, because in the reference the backend finds this error when it reads the tensor.
        cut_string.map_or(Ok(checked), Err)
    }

    /// The error of row 17.
    pub(crate) fn byte_size_error(&self, prefix: &dyn fmt::Display, input: &str, expected: u64, got: usize) -> Error {
        Error::invalid(format!(
            "{prefix}input byte size mismatch for input '{input}' for model '{}'. Expected {expected}, got {got}",
            self.model
        ))
    }

    /// Finds the inputs in the configuration. Returns false if one is unknown or duplicate.
    fn find_inputs(&self, request: &InferRequest, checked: &mut Checked) -> bool {
        let mut found = IndexSet::default();
        request.inputs.iter().enumerate().all(|(i, input)| {
            let Some(at) = find(self.inputs.iter().map(|known| &known.name), i, &input.name) else { return false };
            checked.inputs.push(index(at));
            found.insert(at)
        })
    }

    /// Checks rows 9 and 10; returns the selected outputs in configuration order.
    fn check_outputs(&self, request: &InferRequest) -> Result<OutputSelection> {
        if request.outputs.is_empty() {
            return Ok((0..self.outputs.len()).map(|i| (index(i), None)).collect());
        }
        let mut selected = OutputSelection::new();
        let mut found = IndexSet::default();
        for (i, output) in request.outputs.iter().enumerate() {
            let known = self.outputs.iter().map(|known| &known.name);
            let configured = find(known, i, &output.name).ok_or_else(|| {
                Error::invalid(format!("unexpected inference output '{}' for model '{}'", output.name, self.model))
            })?;
            if !found.insert(configured) {
                return Err(duplicate_output(&request.id, &output.name));
            }
            selected.push((index(configured), Some(index(i))));
        }
        // Most clients name outputs in the order of the configuration.
        if !selected.is_sorted() {
            selected.sort_unstable();
        }
        Ok(selected)
    }

    /// Checks rows 6 and 7.
    fn check_count(&self, request: &InferRequest) -> Result<()> {
        let (all, got) = (self.inputs.len(), request.inputs.len());
        let required = self.inputs.iter().filter(|i| !i.optional).count();
        if (required..=all).contains(&got) {
            return Ok(());
        }
        let expected = if required == all {
            format!("expected {all} inputs")
        } else {
            format!("expected number of inputs between {required} and {all}")
        };
        let names = quoted(request.inputs.iter().rev().map(|i| i.name.as_str()));
        let given: HashSet<&[u8]> = request.inputs.iter().map(|i| i.name.as_bytes()).collect();
        let missing: Vec<&str> = self
            .inputs
            .iter()
            .filter(|i| !i.optional && !given.contains(i.name.as_bytes()))
            .map(|i| i.name.as_str())
            .collect();
        // The reference prints the opening bracket together with the first name.
        let open = if missing.is_empty() { "" } else { "[" };
        Err(Error::invalid(format!(
            "{}{expected} but got {got} inputs for model '{}'. Got input(s) [{names}], but missing required input(s) \
             {open}{}]. Please provide all required input(s).",
            IdPrefix(&request.id),
            self.model,
            quoted(missing.iter().copied()),
        )))
    }

    /// Checks rows 13 and 12. Only -1 is "not specified"; other negative dimensions are shapes that do not match.
    fn check_shape(&self, prefix: &Prefix<'_>, spec: &InputSpec, shape: &[i64]) -> Result<()> {
        if shape.contains(&-1) {
            return Err(Error::invalid(format!(
                "{prefix}All input dimensions should be specified for input '{}' for model '{}', got {}",
                spec.name,
                self.model,
                ShapeDisplay(shape)
            )));
        }
        let dims = shape.get(usize::from(self.batches())..).unwrap_or_default();
        let fits =
            dims.len() == spec.dims.len() && dims.iter().zip(&spec.dims).all(|(d, s)| *d >= 0 && (*s == -1 || d == s));
        if fits {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{prefix}unexpected shape for input '{}' for model '{}'. Expected {}, got {}. {}",
            spec.name,
            self.model,
            ShapeDisplay(&self.full_shape(&spec.dims)),
            ShapeDisplay(shape),
            if self.batches() { BATCH_NOTE } else { "" }
        )))
    }

    /// Checks rows 18 to 20; returns the error of row 21, which comes after all other checks. For data in a region this
    /// is an early check only: backends copy the data before they use them, and count again.
    fn check_strings(&self, prefix: &Prefix<'_>, input: &Name, raw: &Data, expected: u64) -> Result<Option<Error>> {
        if matches!(raw.location(), Location::Device(_)) {
            // Each element would need a copy from the device; the backend counts them in its own copy.
            return Ok(None);
        }
        let model = &self.model;
        let mut n = 0u64;
        let mut cut = None;
        for element in Lengths::new(raw) {
            if let Err(Broken::Length { available }) = element {
                return Err(Error::invalid(format!(
                    "{prefix}incomplete string length indicator for inference input '{input}' for model '{model}', \
                     expecting 4 bytes but only {available} bytes available. Please make sure the string length \
                     indicator is in one buffer."
                )));
            }
            n += 1;
            if n > expected {
                return Err(Error::invalid(format!(
                    "{prefix}unexpected number of string elements {n} for inference input '{input}' for model \
                     '{model}', expecting {expected}"
                )));
            }
            if let Err(Broken::Element { expected, available }) = element {
                cut = Some(Error::invalid(format!(
                    "incomplete string data for inference input '{input}', expecting string of length {expected} but \
                     only {available} bytes available"
                )));
            }
        }
        if n != expected {
            return Err(Error::invalid(format!(
                "{prefix}expected {expected} string elements for inference input '{input}' for model '{model}', got {n}"
            )));
        }
        Ok(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_inserted_once_in_the_mask_and_beyond_it() {
        let mut set = IndexSet::default();
        for at in [0, 63, 64, 1, 65_535] {
            assert!(set.insert(at), "{at}");
            assert!(!set.insert(at), "{at} again");
        }
    }

    #[test]
    fn a_name_is_found_with_any_guess() {
        let names = ["A", "B", "C"].map(Name::from_static);
        for guess in 0..4 {
            assert_eq!(find(names.iter(), guess, &"B".into()), Some(1));
            assert_eq!(find(names.iter(), guess, &"D".into()), None);
        }
    }
}

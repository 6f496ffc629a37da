//! A short list whose frequent entries are found first.

/// Finds or adds an entry. Each access moves it one step towards the front, so frequent entries are found quickly, and
/// a flood of rare ones cannot evict them.
#[inline]
pub(super) fn remembered<T>(
    all: &mut Vec<T>,
    most: usize,
    is_searched: impl Fn(&T) -> bool,
    new: impl FnOnce() -> T,
) -> Option<&mut T> {
    let at = match all.iter().position(is_searched) {
        Some(at) if at > 0 => {
            all.swap(at, at - 1);
            at - 1
        }
        Some(at) => at,
        None => {
            all.truncate(most - 1);
            all.push(new());
            all.len() - 1
        }
    };
    all.get_mut(at)
}

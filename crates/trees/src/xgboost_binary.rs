//! Reads XGBoost's own binary format (`xgboost.model`) of versions before 3.1: little-endian C structs.

use crate::binary::{Bytes, item};
use crate::compare::Compare;
use crate::ensemble::{Ensemble, FileNode, Forest, Test, unsupported, within};
use crate::limits::TEXT_BYTES_MAX;
use crate::xgboost::{Shape, check_booster, finish, weigh};
use tensor::{Error, Result};

/// Bytes of a node: parent, left, right, feature with the default direction in its highest bit, condition or value.
const NODE_BYTES: usize = 20;
/// Bytes of a node's statistics, which predictions do not use.
const STATISTICS_BYTES: u64 = 16;
/// Left child of a leaf.
const NO_NODE: i32 = -1;

pub(crate) fn read(file: &[u8]) -> Result<Ensemble> {
    if file.starts_with(b"bs64") {
        return Err(unsupported(
            "the file is in base64, as very old versions wrote it. Load it with XGBoost 0.90 and save it again",
        ));
    }
    let mut at = Bytes::new(file);
    if file.starts_with(b"binf") {
        at.take(4, 1)?;
    }
    // LearnerModelParam, 136 bytes.
    let base_score = at.f32()?;
    let features = at.i32()? as u32;
    let classes = at.i32()?;
    at.take(2, 4)?; // contain_extra_attrs, contain_eval_metrics
    let major = at.i32()?;
    at.i32()?; // minor_version
    let targets = at.i32()?;
    at.take(26, 4)?;
    let objective = text(&mut at)?;
    let booster = text(&mut at)?;
    check_booster(&booster)?;
    // GBTreeModelParam, 160 bytes.
    let trees = at.i32()?;
    at.take(156, 1)?;
    let trees = u32::try_from(trees).map_err(|_| at.error(format_args!("{trees} trees")))?;
    let mut forest = Forest::default();
    for number in 0..trees {
        let nodes = tree(&mut at, major).map_err(|e| within(format_args!("tree {number}"), e))?;
        forest.add(0, nodes.len() / NODE_BYTES, 0, |i| node(nodes, i as usize))?;
    }
    let info = at.take(u64::from(trees), 4)?;
    let info = info.chunks_exact(4).map(|c| i64::from(c.try_into().map_or(-1, i32::from_le_bytes)));
    let info: Vec<i64> = info.collect();
    if booster == "dart" && trees > 0 {
        let count = at.u64()?;
        let weights = at.take(count, 4)?.chunks_exact(4).map(|c| c.try_into().map_or(f32::NAN, f32::from_le_bytes));
        weigh(&mut forest, &weights.collect::<Vec<_>>())?;
    }
    let count = |n: i32| u64::try_from(n).unwrap_or(0);
    let shape = Shape { classes: count(classes), targets: count(targets), features: u64::from(features) };
    // Version 0 wrote the sum, later ones the user's value.
    finish(forest, &info, &objective, &shape, &[base_score], major >= 1)
}

fn text(at: &mut Bytes<'_>) -> Result<String> {
    let length = at.u64()?;
    if length > TEXT_BYTES_MAX as u64 {
        return Err(at.error(format_args!("a text of {length} bytes: the file is not in XGBoost's binary format")));
    }
    at.take(length, 1).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Reads the nodes of a tree.
fn tree<'a>(at: &mut Bytes<'a>, major: i32) -> Result<&'a [u8]> {
    // TreeParam, 148 bytes.
    let roots = at.i32()?;
    let nodes = at.i32()?;
    at.take(3, 4)?; // num_deleted, max_depth, num_feature
    let leaf_size = at.i32()?;
    at.take(31, 4)?;
    let count = u64::try_from(nodes).ok().filter(|n| *n > 0);
    let count = count.ok_or_else(|| at.error(format_args!("{nodes} nodes")))?;
    if roots != 1 {
        return Err(unsupported(format!("a tree with {roots} roots")));
    }
    let nodes = at.take(count, NODE_BYTES as u64)?;
    at.take(count, STATISTICS_BYTES)?;
    if leaf_size > 1 {
        return Err(unsupported(format!("its leaves have {leaf_size} values, and only leaves of one are supported")));
    }
    // Before version 2, a list follows for size 1 but not for 0.
    if leaf_size != 0 && major < 2 {
        let count = at.u64()?;
        at.take(count, 4)?;
    }
    Ok(nodes)
}

fn node(nodes: &[u8], index: usize) -> Result<FileNode> {
    let bytes: [u8; NODE_BYTES] = item(nodes, index).ok_or_else(|| Error::invalid("it does not exist"))?;
    let field = |i| item::<4>(&bytes, i).unwrap_or_default();
    let (left, right) = (i32::from_le_bytes(field(1)), i32::from_le_bytes(field(2)));
    let feature = u32::from_le_bytes(field(3));
    let value = f32::from_le_bytes(field(4));
    if left == NO_NODE {
        return Ok(FileNode::Leaf(f64::from(value)));
    }
    let child = |n: i32| u32::try_from(n).map_err(|_| Error::invalid(format!("{n} is named as a child")));
    Ok(FileNode::Split {
        feature: feature & (u32::MAX >> 1),
        test: Test::Compare(Compare::Less, value),
        left: child(left)?,
        right: child(right)?,
        missing_left: feature >> 31 == 1,
    })
}

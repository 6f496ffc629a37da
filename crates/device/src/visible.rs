//! Parses `CUDA_VISIBLE_DEVICES` as documented, to explain why a device is missing. Pure; the driver itself applies it.
//!
//! Does not map indices to devices: the driver numbers them by speed, and shows that only without the variable.

/// An entry that selects no device; it and all later entries are ignored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ignored {
    /// The entry's text.
    pub entry: String,
    /// The reason, for example `there are 2 devices`.
    pub why: String,
}

/// The first entry of `list` that selects no device of the machine; `uuids` has those of all devices and instances.
pub fn first_ignored(list: &str, uuids: &[String]) -> Option<Ignored> {
    let devices = uuids.iter().filter(|uuid| uuid.starts_with("GPU-")).count();
    list.split(',').find_map(|entry| {
        let ignored = |why: String| Some(Ignored { entry: entry.to_owned(), why });
        let entry = entry.trim();
        if let Ok(index) = entry.parse::<i64>() {
            let is_there = usize::try_from(index).is_ok_and(|index| index < devices);
            return if is_there { None } else { ignored(format!("there are {devices} devices, counted from 0")) };
        }
        // The old form of an instance includes its device: MIG-GPU-<uuid>/1/0.
        let beginning = entry
            .strip_prefix("MIG-GPU-")
            .map_or(entry.to_owned(), |rest| format!("GPU-{}", rest.split('/').next().unwrap_or_default()));
        if !beginning.starts_with("GPU-") && !beginning.starts_with("MIG-") {
            return ignored("it is neither an index nor a uuid".into());
        }
        let fits = |uuid: &&String| uuid.get(..beginning.len()).is_some_and(|cut| cut.eq_ignore_ascii_case(&beginning));
        match uuids.iter().filter(fits).count() {
            0 => ignored("no uuid of a device begins with it".into()),
            1 => None,
            n => ignored(format!("the uuids of {n} devices begin with it")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entry_that_selects_no_device_is_named_with_the_reason() {
        let uuids = ["GPU-a0000000-1", "GPU-a1000000-2", "MIG-b1000000-2", "MIG-b1100000-2"].map(String::from);
        let check = |list: &str, expected: Option<(&str, &str)>| {
            let found = first_ignored(list, &uuids);
            let found = found.as_ref().map(|one| (one.entry.as_str(), one.why.as_str()));
            assert_eq!(found, expected, "{list:?}");
        };
        check("0", None);
        check("1,0", None);
        check("GPU-a1,GPU-A0000000-1", None);
        check("MIG-b11,0", None);
        check("MIG-GPU-a1000000-2/1/0", None);
        check("0,2,1", Some(("2", "there are 2 devices, counted from 0")));
        check("0,-1", Some(("-1", "there are 2 devices, counted from 0")));
        check("GPU-a", Some(("GPU-a", "the uuids of 2 devices begin with it")));
        check("MIG-c", Some(("MIG-c", "no uuid of a device begins with it")));
        check("", Some(("", "it is neither an index nor a uuid")));
        check("0,NoDevFiles", Some(("NoDevFiles", "it is neither an index nor a uuid")));
    }
}

//! Devices of the instances of a version, for metrics of executions on GPUs (O-17, observability.md 1.4).

/// Devices of instances.
#[derive(Debug, Default)]
pub(crate) struct OnDevices {
    /// By instance, an index in `ordinals`; empty if none is on a device.
    instances: Vec<Option<usize>>,
    ordinals: Vec<u32>,
}

impl OnDevices {
    /// `devices` are in the order of instance numbers.
    pub(crate) fn of(places: impl Iterator<Item = Option<u32>>) -> Self {
        let mut all = Self::default();
        for place in places {
            let at = all.index_of(place);
            all.instances.push(at);
        }
        if all.ordinals.is_empty() {
            all.instances.clear();
        }
        all
    }

    fn index_of(&mut self, device: Option<u32>) -> Option<usize> {
        let ordinal = device?;
        Some(self.ordinals.iter().position(|&known| known == ordinal).unwrap_or_else(|| {
            self.ordinals.push(ordinal);
            self.ordinals.len() - 1
        }))
    }

    /// Sets the device of an instance that is new or reuses a number. Indices of devices do not change.
    pub(crate) fn place(&mut self, instance: u32, device: Option<u32>) {
        let (number, at) = (instance as usize, self.index_of(device));
        if number >= self.instances.len() && at.is_some() {
            self.instances.resize(number + 1, None);
        }
        if let Some(place) = self.instances.get_mut(number) {
            *place = at;
        }
    }

    /// Ordinals of the devices, each once.
    pub(crate) fn ordinals(&self) -> &[u32] {
        &self.ordinals
    }

    /// True if no instance is on a device.
    pub(crate) fn is_empty(&self) -> bool {
        self.ordinals.is_empty()
    }

    pub(crate) fn device(&self, instance: u32) -> Option<u32> {
        self.ordinals.get(self.at(instance)?).copied()
    }

    pub(crate) fn instances_on(&self, device: u32) -> impl Iterator<Item = u32> {
        let is_there = move |at: &Option<usize>| at.and_then(|at| self.ordinals.get(at)) == Some(&device);
        (0..).zip(&self.instances).filter(move |(_, at)| is_there(at)).map(|(instance, _)| instance)
    }

    /// Index in `ordinals` of the device of an instance.
    #[inline]
    pub(crate) fn at(&self, instance: u32) -> Option<usize> {
        self.instances.get(instance as usize).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o_17_instances_of_a_device_count_together_and_those_of_the_host_do_not() {
        let on = OnDevices::of([Some(3), None, Some(0), Some(3)].into_iter());
        assert_eq!(on.ordinals(), [3, 0]);
        assert_eq!([0, 1, 2, 3, 4].map(|i| on.at(i)), [Some(0), None, Some(1), Some(0), None]);
        let host = OnDevices::of([None, None].into_iter());
        assert!(host.ordinals().is_empty() && host.instances.is_empty());
        assert_eq!(on.instances_on(3).collect::<Vec<_>>(), [0, 3]);
        assert_eq!([0, 1, 2, 4].map(|i| on.device(i)), [Some(3), None, Some(0), None]);
        let mut on = on;
        on.place(9, None);
        on.place(5, Some(7));
        on.place(0, Some(0));
        assert_eq!((on.ordinals(), on.at(0), on.at(5)), (&[3, 0, 7][..], Some(1), Some(2)));
        on.place(5, None);
        assert_eq!([4, 5, 9].map(|i| on.device(i)), [None; 3]);
    }
}

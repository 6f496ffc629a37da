//! The devices of this process, read from the driver once. Ordinals follow `CUDA_VISIBLE_DEVICES`, which the driver
//! applies: a device that it hides does not exist here.
//!
//! Invariant: a property that the driver does not report is missing, with a line in the log; the device remains.

use crate::driver::{Driver, driver};
use crate::library::Unavailable;
use std::fmt;
use std::sync::LazyLock;
use tensor::Result;

/// Numbers of `CUdevice_attribute`.
const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
const COMPUTE_CAPABILITY_MINOR: i32 = 76;

/// A device, or an instance of one in MIG mode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// Ordinal in this process: from 0, in the order of `CUDA_VISIBLE_DEVICES`.
    pub ordinal: u32,
    /// For example `NVIDIA H200`; empty if the driver does not report it.
    pub name: String,
    /// An instance has a uuid of its own.
    pub uuid: Option<Uuid>,
    /// Address of the device, also for an instance of it.
    pub pci: Option<PciAddress>,
    /// Major and minor, for example 9 and 0.
    pub compute_capability: Option<(u32, u32)>,
    /// Size of its memory.
    pub memory_bytes: Option<usize>,
    /// Ordinals of the devices whose memory it can access.
    pub peers: Vec<u32>,
}

/// Unique id of a device on all machines, without the written prefix `GPU-` or `MIG-`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let hyphen = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{hyphen}{byte:02x}")?;
        }
        Ok(())
    }
}

/// PCI address of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PciAddress {
    /// Usually 0.
    pub domain: u32,
    /// Bus of the domain.
    pub bus: u8,
    /// Slot of the bus.
    pub slot: u8,
}

impl PciAddress {
    /// Parses `0000:17:00.0`, with a domain of any length; the function after the point is 0 for all devices.
    pub fn parse(text: &str) -> Option<Self> {
        let (place, _) = text.trim().split_once('.')?;
        let mut parts = place.split(':');
        let (domain, bus, slot) = (parts.next()?, parts.next()?, parts.next()?);
        let read = |digits: &str| u32::from_str_radix(digits, 16).ok();
        let byte = |digits: &str| u8::from_str_radix(digits, 16).ok();
        let address = Self { domain: read(domain)?, bus: byte(bus)?, slot: byte(slot)? };
        parts.next().is_none().then_some(address)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.0", self.domain, self.bus, self.slot)
    }
}

/// The devices of this process, read once.
///
/// # Errors
/// The reason why there is none.
pub fn devices() -> Result<&'static [Device], &'static Unavailable> {
    static DEVICES: LazyLock<Result<Vec<Device>, &'static Unavailable>> = LazyLock::new(|| {
        let driver = driver()?;
        Ok((0..driver.devices()).map(|ordinal| describe(driver, ordinal)).collect())
    });
    DEVICES.as_ref().map(Vec::as_slice).map_err(|why| *why)
}

fn describe(driver: &Driver, ordinal: u32) -> Device {
    let attribute = |number| driver.device_attribute(ordinal, number).map(|value| u32::try_from(value).unwrap_or(0));
    let capability = attribute(COMPUTE_CAPABILITY_MAJOR)
        .and_then(|major| attribute(COMPUTE_CAPABILITY_MINOR).map(|minor| (major, minor)));
    let can_read = |&peer: &u32| peer != ordinal && said(ordinal, driver.can_access_peer(ordinal, peer)) == Some(true);
    Device {
        ordinal,
        name: said(ordinal, driver.device_name(ordinal)).unwrap_or_default(),
        uuid: said(ordinal, driver.device_uuid(ordinal)).map(Uuid),
        pci: said(ordinal, driver.device_pci(ordinal)).and_then(|text| PciAddress::parse(&text)),
        compute_capability: said(ordinal, capability),
        memory_bytes: said(ordinal, driver.device_memory(ordinal)),
        peers: (0..driver.devices()).filter(can_read).collect(),
    }
}

fn said<T>(ordinal: u32, answer: Result<T>) -> Option<T> {
    answer.inspect_err(|e| log::warn!("the driver does not describe device {ordinal} fully: {}", e.message())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_libraries_are_equal() {
        let cuda = PciAddress::parse("0000:17:00.0");
        assert_eq!(cuda, Some(PciAddress { domain: 0, bus: 0x17, slot: 0 }));
        assert_eq!(PciAddress::parse("00000000:17:00.0"), cuda);
        assert_eq!(PciAddress::parse("10000:C1:1F.0").map(|p| p.to_string()).as_deref(), Some("10000:c1:1f.0"));
        for text in ["", "17:00.0", "0000:17:00", "0000:117:00.0", "0000:17:00:00.0", "0000:xx:00.0"] {
            assert_eq!(PciAddress::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_uuid_is_written_in_five_groups() {
        let uuid = Uuid(std::array::from_fn(|i| i as u8));
        assert_eq!(uuid.to_string(), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}

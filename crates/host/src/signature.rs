//! What the content of a volume says it is: file systems, swap, RAID and LVM members, partition tables.
//!
//! Pure: bytes come through a closure. Only well-known places are read, in the first MiB and at the end, so a
//! clean answer means "nothing known here", never "empty".

/// Something recognised, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// What it is, such as `xfs` or `GPT partition table`.
    pub name: &'static str,
    /// Byte offset of the mark.
    pub offset: u64,
}

/// Reads bytes at an offset; may give fewer near the end.
pub type ReadAt<'a, E> = dyn Fn(u64, &mut [u8]) -> Result<usize, E> + 'a;

/// A mark at a fixed place.
struct Mark {
    name: &'static str,
    offset: u64,
    bytes: &'static [u8],
}

const fn mark(name: &'static str, offset: u64, bytes: &'static [u8]) -> Mark {
    Mark { name, offset, bytes }
}

/// Marks at fixed places from the start, as the on-disk formats and libblkid know them.
const MARKS: &[Mark] = &[
    mark("xfs", 0, b"XFSB"),
    mark("LUKS encryption", 0, b"LUKS\xba\xbe"),
    mark("squashfs", 0, b"hsqs"),
    mark("Ceph BlueStore", 0, b"bluestore block device\n"),
    mark("md RAID member (1.1)", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    mark("ntfs", 3, b"NTFS    "),
    mark("exfat", 3, b"EXFAT   "),
    mark("BitLocker", 3, b"-FVE-FS-"),
    mark("Oracle ASM", 32, b"ORCLDISK"),
    mark("vfat", 54, b"FAT12   "),
    mark("vfat", 54, b"FAT16   "),
    mark("vfat", 82, b"FAT32   "),
    mark("GPT partition table", 512, b"EFI PART"),
    mark("GPT partition table", 4096, b"EFI PART"),
    mark("f2fs", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    mark("erofs", 1024, &[0xe2, 0xe1, 0xf5, 0xe0]),
    mark("md RAID member (1.2)", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    mark(
        "bcache",
        4120,
        &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81],
    ),
    mark(
        "bcachefs",
        4120,
        &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef],
    ),
    mark("LUKS encryption", 0x4000, b"SKUL\xba\xbe"),
    mark("iso9660", 32_769, b"CD001"),
    mark("VDO", 0, b"dmvdo001"),
    mark("apfs", 32, b"NXSB"),
    mark("jfs", 32_768, b"JFS1"),
    mark("reiserfs", 65_588, b"ReIsEr"),
    mark("gfs2", 65_536, &[0x01, 0x16, 0x19, 0x70]),
    mark("btrfs", 65_600, b"_BHRfS_M"),
    mark("VMFS", 1 << 20, &[0x0d, 0xd0, 0x01, 0xc0]),
];

/// What stands in place of the swap mark while the memory of a system that is off is kept there.
const HIBERNATED: [&[u8]; 4] = [b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND", b"LINHIB0001"];

/// Page sizes of the architectures Linux runs on: the swap mark ends the first page.
const PAGE_BYTES: [u64; 4] = [4096, 8192, 16_384, 65_536];

/// Looks at the known places of a volume of `size` bytes. Each kind is named once.
///
/// # Errors
/// The first error of `read_at`.
pub fn detect<E>(read_at: &ReadAt<'_, E>, size: u64) -> Result<Vec<Signature>, E> {
    let volume = Volume { read_at, size };
    let mut found = Vec::new();
    for mark in MARKS {
        if volume.holds(mark.offset, mark.bytes)? {
            found.push(Signature { name: mark.name, offset: mark.offset });
        }
    }
    volume.find_ext(&mut found)?;
    volume.find_swap(&mut found)?;
    volume.find_lvm(&mut found)?;
    volume.find_raid_at_end(&mut found)?;
    volume.find_firmware_raid(&mut found)?;
    volume.find_backup_gpt(&mut found)?;
    volume.find_zfs(&mut found)?;
    volume.find_mbr(&mut found)?;
    let mut seen = Vec::new();
    found.retain(|signature| {
        let first = !seen.contains(&signature.name);
        seen.push(signature.name);
        first
    });
    Ok(found)
}

struct Volume<'a, E> {
    read_at: &'a ReadAt<'a, E>,
    size: u64,
}

impl<E> Volume<'_, E> {
    /// Reads `N` bytes; `None` when the volume ends before.
    fn bytes<const N: usize>(&self, offset: u64) -> Result<Option<[u8; N]>, E> {
        let mut buffer = [0; N];
        Ok(self.fill(offset, &mut buffer)?.then_some(buffer))
    }

    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, E> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.size) {
            return Ok(false);
        }
        let mut done = 0;
        while done < buffer.len() {
            match (self.read_at)(offset + done as u64, &mut buffer[done..])? {
                0 => return Ok(false),
                count => done += count,
            }
        }
        Ok(true)
    }

    fn holds(&self, offset: u64, wanted: &[u8]) -> Result<bool, E> {
        let mut buffer = [0; 32];
        let buffer = &mut buffer[..wanted.len()];
        Ok(self.fill(offset, buffer)? && buffer == wanted)
    }

    /// ext2, ext3 and ext4 share a mark; a journal makes it 3, extents and the like make it 4.
    fn find_ext(&self, found: &mut Vec<Signature>) -> Result<(), E> {
        const JOURNAL: u32 = 0x4;
        const EXTENTS_64BIT_FLEX: u32 = 0x40 | 0x80 | 0x200;
        let Some(block) = self.bytes::<0x68>(1024)? else { return Ok(()) };
        if block[0x38..0x3a] != [0x53, 0xef] {
            return Ok(());
        }
        let word = |at: usize| u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        let name = match (word(0x5c) & JOURNAL != 0, word(0x60) & EXTENTS_64BIT_FLEX != 0) {
            (_, true) => "ext4",
            (true, false) => "ext3",
            (false, false) => "ext2",
        };
        found.push(Signature { name, offset: 1024 + 0x38 });
        Ok(())
    }

    fn find_swap(&self, found: &mut Vec<Signature>) -> Result<(), E> {
        for page in PAGE_BYTES {
            let offset = page - 10;
            let Some(text) = self.bytes::<10>(offset)? else { continue };
            if &text == b"SWAPSPACE2" || &text == b"SWAP-SPACE" {
                found.push(Signature { name: "swap", offset });
            } else if HIBERNATED.iter().any(|mark| text.starts_with(mark)) {
                found.push(Signature { name: "a hibernated system (swsuspend)", offset });
            }
        }
        Ok(())
    }

    /// The LVM label may stand in any of the first four sectors.
    fn find_lvm(&self, found: &mut Vec<Signature>) -> Result<(), E> {
        for offset in [0, 512, 1024, 1536] {
            if self.holds(offset, b"LABELONE")? && self.holds(offset + 24, b"LVM2 001")? {
                found.push(Signature { name: "LVM2 member", offset });
            }
        }
        Ok(())
    }

    /// Firmware RAID keeps its record at the end: Intel's (VROC) in the last sector but one, DDF in the last.
    fn find_firmware_raid(&self, found: &mut Vec<Signature>) -> Result<(), E> {
        let sectors = self.size / 512;
        let marks: [(&'static str, u64, &[u8]); 2] = [
            ("Intel RAID member", 2, b"Intel Raid ISM Cfg Sig."),
            ("DDF RAID member", 1, &[0xde, 0x11, 0xde, 0x11]),
        ];
        for (name, from_end, bytes) in marks {
            let Some(offset) = sectors.checked_sub(from_end).map(|sector| sector * 512) else { continue };
            if self.holds(offset, bytes)? {
                found.push(Signature { name, offset });
            }
        }
        Ok(())
    }

    /// Version 0.90 ends in the last whole 64 KiB block, in either byte order; 1.0 lies 8 KiB before the end.
    fn find_raid_at_end(&self, found: &mut Vec<Signature>) -> Result<(), E> {
        const MAGIC: u32 = 0xa92b_4efc;
        if let Some(offset) = (self.size & !0xffff).checked_sub(0x10000)
            && (self.holds(offset, &MAGIC.to_le_bytes())? || self.holds(offset, &MAGIC.to_be_bytes())?)
        {
            found.push(Signature { name: "md RAID member (0.90)", offset });
        }
        if let Some(sectors) = (self.size / 512).checked_sub(16) {
            let offset = (sectors & !7) * 512;
            if self.holds(offset, &MAGIC.to_le_bytes())? {
                found.push(Signature { name: "md RAID member (1.0)", offset });
            }
        }
        Ok(())
    }

    /// The copy in the last block survives a wiped start and would be found again by the kernel's user tools.
    fn find_backup_gpt(&self, found: &mut Vec<Signature>) -> Result<(), E> {
        for block in [512, 4096] {
            let Some(offset) = (self.size / block * block).checked_sub(block) else { continue };
            if self.holds(offset, b"EFI PART")? {
                found.push(Signature { name: "GPT partition table", offset });
            }
        }
        Ok(())
    }

    /// Four labels of 256 KiB, two at each end; the second half of each is a ring of uberblocks.
    fn find_zfs(&self, found: &mut Vec<Signature>) -> Result<(), E> {
        const LABEL: u64 = 256 << 10;
        const RING: u64 = 128 << 10;
        const MAGIC: u64 = 0x00ba_b10c;
        let end = self.size & !(LABEL - 1);
        let labels = [Some(0), Some(LABEL), end.checked_sub(2 * LABEL), end.checked_sub(LABEL)];
        let mut ring = vec![0; RING as usize];
        for label in labels.into_iter().flatten() {
            if !self.fill(label + RING, &mut ring)? {
                continue;
            }
            let is_magic = |slot: &[u8]| slot[..8] == MAGIC.to_le_bytes() || slot[..8] == MAGIC.to_be_bytes();
            if let Some(slot) = ring.chunks_exact(1024).position(is_magic) {
                found.push(Signature { name: "zfs member", offset: label + RING + slot as u64 * 1024 });
                return Ok(());
            }
        }
        Ok(())
    }

    /// A boot sector also ends in 55 AA: a table counts when its four entries look like entries. The
    /// protective table of a GPT is part of that.
    fn find_mbr(&self, found: &mut Vec<Signature>) -> Result<(), E> {
        let Some(sector) = self.bytes::<512>(0)? else { return Ok(()) };
        let entries = || sector[446..510].chunks_exact(16);
        let plausible = entries().all(|entry| matches!(entry[0], 0 | 0x80));
        let used = entries().any(|entry| entry[4] != 0 && entry[12..16] != [0; 4]);
        let protective = entries().all(|entry| matches!(entry[4], 0 | 0xee));
        let has_gpt = found.iter().any(|signature| signature.name.starts_with("GPT"));
        if sector[510..] == [0x55, 0xaa] && plausible && used && !(protective && has_gpt) {
            found.push(Signature { name: "MBR partition table", offset: 446 });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    const SIZE: usize = 2 << 20;

    fn detect_in(image: &[u8]) -> Vec<Signature> {
        let read = |offset: u64, buffer: &mut [u8]| -> Result<usize, Infallible> {
            let start = (offset as usize).min(image.len());
            let count = buffer.len().min(image.len() - start);
            buffer[..count].copy_from_slice(&image[start..start + count]);
            Ok(count)
        };
        detect(&read, image.len() as u64).unwrap()
    }

    fn names(parts: &[(usize, &[u8])]) -> Vec<&'static str> {
        let mut image = vec![0; SIZE];
        for (offset, bytes) in parts {
            image[*offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        detect_in(&image).into_iter().map(|signature| signature.name).collect()
    }

    #[test]
    fn knows_every_fixed_mark() {
        for mark in MARKS {
            assert_eq!(
                names(&[(mark.offset as usize, mark.bytes)]),
                [mark.name],
                "{} at {}",
                mark.name,
                mark.offset
            );
        }
    }

    #[test]
    fn tells_ext_versions_apart() {
        let magic: (usize, &[u8]) = (1080, &[0x53, 0xef]);
        assert_eq!(names(&[magic]), ["ext2"]);
        assert_eq!(names(&[magic, (1024 + 0x5c, &[4])]), ["ext3"]);
        assert_eq!(names(&[magic, (1024 + 0x5c, &[4]), (1024 + 0x60, &[0x40])]), ["ext4"]);
    }

    #[test]
    fn finds_what_stands_at_the_end() {
        let raid = 0xa92b_4efc_u32;
        assert_eq!(names(&[(SIZE - 65536, &raid.to_be_bytes())]), ["md RAID member (0.90)"]);
        assert_eq!(names(&[(SIZE - 8192, &raid.to_le_bytes())]), ["md RAID member (1.0)"]);
        assert_eq!(names(&[(SIZE - 512, b"EFI PART")]), ["GPT partition table"]);
        assert_eq!(names(&[(SIZE - 1024, b"Intel Raid ISM Cfg Sig. 1.2.00")]), ["Intel RAID member"]);
        assert_eq!(names(&[(SIZE - 512, &[0xde, 0x11, 0xde, 0x11])]), ["DDF RAID member"]);
        let uberblock = 0x00ba_b10c_u64.to_le_bytes();
        assert_eq!(names(&[(SIZE - (256 << 10) + (128 << 10) + 4096, &uberblock)]), ["zfs member"]);
    }

    #[test]
    fn finds_swap_lvm_and_partition_tables() {
        assert_eq!(names(&[(4086, b"SWAPSPACE2")]), ["swap"]);
        for mark in HIBERNATED {
            // Not as swap, which may be taken into use as it is: the memory of that system would be lost.
            assert_eq!(names(&[(4086, mark)]), ["a hibernated system (swsuspend)"]);
            assert_eq!(names(&[(65_526, mark)]), ["a hibernated system (swsuspend)"]);
        }
        assert_eq!(names(&[(512, b"LABELONE"), (536, b"LVM2 001")]), ["LVM2 member"]);
        let entry: &[u8] = &[0x80, 0, 0, 0, 0x83, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0];
        assert_eq!(names(&[(446, entry), (510, &[0x55, 0xaa])]), ["MBR partition table"]);
        let protective: &[u8] = &[0, 0, 0, 0, 0xee, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0];
        let gpt: (usize, &[u8]) = (512, b"EFI PART");
        assert_eq!(names(&[(446, protective), (510, &[0x55, 0xaa]), gpt]), ["GPT partition table"]);
        assert_eq!(names(&[(510, &[0x55, 0xaa])]), [""; 0], "a boot sector without entries is no table");
    }

    #[test]
    fn finds_nothing_in_zeros_and_survives_any_size() {
        for size in [0, 1, 511, 512, 4096, 65_535, 65_536, 300_000, SIZE] {
            assert_eq!(detect_in(&vec![0; size]), [], "{size}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn never_panics_on_noise(image in prop::collection::vec(any::<u8>(), 0..70_000)) {
            let _ = detect_in(&image);
        }
    }
}

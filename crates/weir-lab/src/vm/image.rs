//! A kernel's image, unpacked once: under qemu's emulation it takes as long to unpack itself as to
//! boot.
//!
//! ```text
//!   ~/.cache/weir/kernels/vmlinuz-6.1.0-56-amd64.1763000000   the ELF image of the one made then
//! ```

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// Where a bzImage says how many sectors come before its protected-mode code (Linux boot protocol
/// s1.3).
const SETUP_SECTORS: usize = 0x1f1;
/// Where it says at which place of that code its payload begins, and how long it is.
const PAYLOAD: usize = 0x248;
const SECTOR_BYTES: usize = 512;

/// What qemu may start in the place of `image`: its payload unpacked, or itself where that cannot
/// be done.
pub(super) fn quick(image: &Path) -> PathBuf {
    unpacked(image).unwrap_or_else(|_| image.to_owned())
}

fn unpacked(image: &Path) -> Result<PathBuf> {
    let home = std::env::var_os("HOME").context("no HOME")?;
    let folder = Path::new(&home).join(".cache/weir/kernels");
    let name = image.file_name().context("an image has a name")?.to_string_lossy();
    let made = fs::metadata(image)?.mtime();
    let kept = folder.join(format!("{name}.{made}"));
    if kept.is_file() {
        return Ok(kept);
    }
    fs::create_dir_all(&folder)?;
    // Several processes may do this at once: each writes a file of its own.
    let draft = tempfile::NamedTempFile::new_in(&folder)?;
    unpack(image, draft.as_file())?;
    let older = format!("{name}.");
    for entry in fs::read_dir(&folder)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&older) {
            let _ = fs::remove_file(entry.path());
        }
    }
    draft.persist(&kept)?;
    Ok(kept)
}

/// Writes the ELF image that `image` carries to `to`.
fn unpack(image: &Path, to: &File) -> Result<()> {
    let payload = payload(image)?;
    let tool = match payload[..] {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "xz",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        _ => bail!("an unknown way of packing"),
    };
    let mut from = tempfile::tempfile()?;
    from.write_all(&payload)?;
    from.rewind()?;
    let mut command = Command::new(tool);
    command.arg("-dc").stdin(from).stdout(to.try_clone()?).stderr(Stdio::null());
    let status = command.status().with_context(|| format!("{tool} is missing"))?;
    let mut magic = [0; 4];
    to.read_exact_at(&mut magic, 0)?;
    ensure!(status.success() && magic == *b"\x7fELF", "{tool} does not unpack it");
    Ok(())
}

/// What `image` unpacks by itself, without the length behind it.
fn payload(image: &Path) -> Result<Vec<u8>> {
    let image = fs::read(image)?;
    let number = |at: usize| -> Option<usize> {
        Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize)
    };
    let setup = usize::from(*image.get(SETUP_SECTORS).context("a short image")?);
    let code = (setup + 1) * SECTOR_BYTES;
    let (Some(start), Some(len)) = (number(PAYLOAD), number(PAYLOAD + 4)) else {
        bail!("a short image");
    };
    let payload = image.get(code + start..).and_then(|it| it.get(..len.checked_sub(4)?));
    Ok(payload.context("a payload beyond its image")?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bzImage of one setup sector whose payload is `packed` and a length.
    fn bz_image(packed: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 2 * SECTOR_BYTES + 16];
        image[SETUP_SECTORS] = 1;
        image[PAYLOAD..PAYLOAD + 4].copy_from_slice(&16u32.to_le_bytes());
        image[PAYLOAD + 4..PAYLOAD + 8].copy_from_slice(&(packed.len() as u32 + 4).to_le_bytes());
        image.extend(packed);
        image.extend([7; 12]);
        image
    }

    #[test]
    fn an_image_is_unpacked_by_what_packed_it_and_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [elf, image] = ["elf", "image"].map(|name| folder.path().join(name));
        fs::write(&elf, [b"\x7fELF".as_slice(), &[1; 5000]].concat()).unwrap();
        for tool in ["xz", "zstd"] {
            if !crate::process::installed(tool) {
                eprintln!("SKIPPED: {tool} is not installed");
                continue;
            }
            let packed = Command::new(tool).arg("-c").arg(&elf).output().unwrap().stdout;
            fs::write(&image, bz_image(&packed)).unwrap();
            let out = folder.path().join("out");
            let open = || {
                let mut options = File::options();
                options.create(true).truncate(true).read(true).write(true).open(&out).unwrap()
            };
            unpack(&image, &open()).unwrap();
            assert_eq!(fs::read(&out).unwrap(), fs::read(&elf).unwrap(), "{tool}");
            fs::write(&image, bz_image(&packed[..packed.len() / 2])).unwrap();
            unpack(&image, &open()).unwrap_err();
        }
        for bytes in [&b""[..], &bz_image(b"not packed"), &bz_image(b"")[..1030]] {
            fs::write(&image, bytes).unwrap();
            assert_eq!(quick(&image), image, "itself");
        }
    }
}

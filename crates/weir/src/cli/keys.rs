//! `weir keys`: identities of gateways, or a key for each direction, and the lines that use them.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use zeroize::Zeroizing;

use weir_engine::esp::spread::SPI_WORKER_MASK;
use weir_engine::tunnel::key::KEY_LEN;

use super::args::{KeysArgs, KeysCommand, KeysFileArgs, KeysGenerateArgs};
use super::print_json;
use crate::config::keying;
use crate::config::settings::Cipher;

/// Bytes of salt behind the key (RFC 4106 s4).
const SALT_BYTES: usize = 4;

/// Runs `weir keys`.
///
/// # Errors
/// A file exists or cannot be written.
pub fn run(args: &KeysArgs) -> Result<ExitCode> {
    match &args.command {
        KeysCommand::Identity(args) => identity(args),
        KeysCommand::Public(args) => public(args),
        KeysCommand::Preshared(args) => preshared(args),
        KeysCommand::Generate(args) => generate(args),
    }
}

#[derive(Serialize)]
struct SecretFile<'a> {
    file: &'a Path,
    public_key: Option<String>,
}

fn identity(args: &KeysFileArgs) -> Result<ExitCode> {
    write_secret(&args.file, keying::IDENTITY_COMMENT)?;
    public(args)
}

fn public(args: &KeysFileArgs) -> Result<ExitCode> {
    let identity = keying::read_identity(&args.file)
        .map_err(|error| anyhow::anyhow!("{error}; {}", error.remedy()))?;
    let public_key = keying::public_text(&identity.public());
    if args.json {
        print_json(&SecretFile { file: &args.file, public_key: Some(public_key) })?;
    } else {
        println!("{public_key}");
    }
    Ok(ExitCode::SUCCESS)
}

fn preshared(args: &KeysFileArgs) -> Result<ExitCode> {
    write_secret(&args.file, keying::PRESHARED_COMMENT)?;
    if args.json {
        print_json(&SecretFile { file: &args.file, public_key: None })?;
    } else {
        let file = toml::Value::from(args.file.display().to_string());
        println!("# of a [[peer]] with a public_key:\npreshared_key_file = {file}");
        println!("# or of one with mode = \"icrc-tag\":\ntag = {{ key_file = {file} }}");
    }
    Ok(ExitCode::SUCCESS)
}

fn write_secret(path: &Path, what: &str) -> Result<()> {
    let bytes = random_bytes(KEY_LEN)?;
    let mut secret = Zeroizing::new([0; KEY_LEN]);
    secret.copy_from_slice(&bytes);
    let mut file = create_secret(path)?;
    writeln!(file, "# {what}\n{}", keying::secret_text(&secret).as_str())?;
    file.sync_all()?;
    Ok(())
}

#[derive(Serialize)]
struct Made {
    from: String,
    to: String,
    key_file: PathBuf,
    spi: u32,
    cipher: &'static str,
}

fn generate(args: &KeysGenerateArgs) -> Result<ExitCode> {
    if args.one == args.other {
        bail!("both gateways are named `{}`; give two names", args.one);
    }
    let cipher = if args.cipher == "aes-128-gcm" { Cipher::Aes128Gcm } else { Cipher::Aes256Gcm };
    fs::create_dir_all(&args.directory)
        .with_context(|| format!("cannot make the directory {}", args.directory.display()))?;
    // Absolute, for relative names in a configuration start at the configuration.
    let directory = fs::canonicalize(&args.directory)?;
    let mut made: Vec<Made> = Vec::new();
    for (from, to) in [(&args.one, &args.other), (&args.other, &args.one)] {
        let key_file = directory.join(format!("{from}-to-{to}.key"));
        if let Err(error) = write_key(&key_file, cipher, from, to) {
            for earlier in &made {
                let _ = fs::remove_file(&earlier.key_file);
            }
            return Err(error);
        }
        let mut spi = random_spi()?;
        while made.iter().any(|earlier| earlier.spi == spi) {
            spi = random_spi()?;
        }
        made.push(Made {
            from: from.clone(),
            to: to.clone(),
            key_file,
            spi,
            cipher: cipher.name(),
        });
    }
    if args.json {
        print_json(&made)?;
    } else {
        print_lines(&made);
    }
    Ok(ExitCode::SUCCESS)
}

fn print_lines(made: &[Made]) {
    for (seal, open) in [(&made[0], &made[1]), (&made[1], &made[0])] {
        println!("# in the configuration of {}, at the [[peer]] named {}:", seal.from, seal.to);
        for (direction, association) in [("seal", seal), ("open", open)] {
            println!(
                "{direction} = {{ spi = {:#010x}, cipher = \"{}\", key_file = \"{}\" }}",
                association.spi,
                association.cipher,
                association.key_file.display()
            );
        }
        println!();
    }
}

fn write_key(path: &Path, cipher: Cipher, from: &str, to: &str) -> Result<()> {
    let mut file = create_secret(path)?;
    let key = random_bytes(cipher.key_bytes() + SALT_BYTES)?;
    let hex: Zeroizing<String> =
        Zeroizing::new(key.iter().map(|byte| format!("{byte:02x}")).collect());
    writeln!(file, "# {from} to {to}: {} key and salt\n{}", cipher.name(), hex.as_str())?;
    file.sync_all()?;
    Ok(())
}

fn create_secret(path: &Path) -> Result<fs::File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).with_context(|| {
        format!("cannot make {} (a key is never overwritten; remove it first)", path.display())
    })
}

/// A random SPI above the reserved ones (RFC 4303 s2.1), a base for the SPIs of several workers.
fn random_spi() -> Result<u32> {
    let bytes = random_bytes(4)?;
    let number = bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
    Ok(number.max(256) & !SPI_WORKER_MASK)
}

fn random_bytes(count: usize) -> Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(vec![0; count]);
    fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("cannot read /dev/urandom")?;
    Ok(bytes)
}

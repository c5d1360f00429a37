#!/bin/bash
# A Debian base image from packages only, from the mirror this machine's own apt uses.
# usage: DOCKER=client LABEL=name=value make-base.sh IMAGE SUITE
set -euo pipefail
image=$1 suite=$2
uri_of() { apt-get indextargets --format '$(REPO_URI)' | grep "$1" | head -n 1 || true; }
mirror=$(uri_of '/debian/*$')
mirror=${mirror:-http://deb.debian.org/debian}
security=$(uri_of 'security/*$')
security=${security:-http://deb.debian.org/debian-security}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

root=$(mktemp -d "${TMPDIR:-/var/tmp}/debian-$suite.XXXXXX")
trap 'rm -rf "$root"' EXIT
# The scripts folder may be older than the suite; every suite since sid's is the same script.
script=
[ -e "/usr/share/debootstrap/scripts/$suite" ] || script=sid
debootstrap --variant=minbase --keyring="$keyring" "$suite" "$root" "$mirror" ${script:+"$script"}

rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/var/log/*.log
# As in the slim images: documentation goes; the folders stay, OpenJDK's install fails without man1.
find "$root"/usr/share/doc "$root"/usr/share/man "$root"/usr/share/info ! -type d -delete
mkdir -p "$root/usr/share/man/man1"
# debootstrap copies the host's resolver and name into the tree; neither belongs in an image.
: >"$root/etc/resolv.conf"
echo localhost >"$root/etc/hostname"
printf 'deb %s %s main\n' "$mirror" "$suite" "$mirror" "$suite-updates" "$security" "$suite-security" >"$root/etc/apt/sources.list"
printf 'path-exclude /usr/share/doc/*\npath-exclude /usr/share/man/*\nforce-unsafe-io\n' >"$root/etc/dpkg/dpkg.cfg.d/docker"
printf 'Acquire::Retries "3";\nAcquire::Languages "none";\nAPT::AutoRemove::SuggestsImportant "false";\n' >"$root/etc/apt/apt.conf.d/docker"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"

tar -C "$root" --numeric-owner -c . \
  | "$DOCKER" import --change 'ENV LANG=C.UTF-8' --change 'CMD ["bash"]' --change "LABEL $LABEL" - "$image"

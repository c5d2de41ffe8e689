#!/bin/sh
# What this machine lacks for building (`build`), for building and testing (`test`), or for the virtual machines (`vm`).
#
# As root on an apt system the packages are installed. Otherwise one line names what is missing and how to get
# it: what building needs is then an error, what only some tests need is not (those tests skip and say so).
set -eu

purpose=${1:-test}
packages=
required=
optional=

have() { command -v "$1" >/dev/null 2>&1; }

# lacks COMMAND PACKAGE required|optional
lacks() {
    have "$1" && return
    packages="$packages $2"
    if [ "$3" = required ]; then required="$required $1"; else optional="$optional $1"; fi
}

lacks cc build-essential required
if [ "$purpose" = test ]; then
    lacks git git required # tidy asks it for the list of files
    lacks fio fio optional
    lacks python3 python3 optional # sets up a seccomp filter for one test
    lacks curl curl optional
    # Programs that are run in extended memory.
    lacks javac default-jdk-headless optional
    lacks memcached memcached optional
    # Debian keeps its programs out of PATH.
    ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || lacks postgres postgresql optional
    # Some systems name the browser otherwise; any of these will do.
    have chromium-browser || have google-chrome || lacks chromium chromium optional
    [ -e /etc/ssl/certs/ca-certificates.crt ] || packages="$packages ca-certificates"
fi
if [ "$purpose" = vm ] || [ "$purpose" = test ]; then
    lacks qemu-system-x86_64 qemu-system-x86 optional
    lacks redis-server redis-server optional # instances of density; no service of it is started
    lacks redis-benchmark redis-tools optional
    # Kernels are fetched as packages, which takes a list of what there is.
    if [ "$(id -u)" = 0 ] && have apt-get && ! apt-cache show linux-image-amd64 >/dev/null 2>&1; then
        apt-get update -qq
    fi
fi
if ! have cargo; then
    if have apt-cache && apt-cache show rustup >/dev/null 2>&1; then
        packages="$packages rustup"
    fi
    required="$required cargo"
fi

if [ -n "$packages" ] && [ "$(id -u)" = 0 ] && have apt-get; then
    echo "setup: installing$packages"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # Packages that come with a service would start it: while this file says 101, none is. What was there stays.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        trap 'rm -f $policy' EXIT
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod 755 $policy
    fi
    # shellcheck disable=SC2086 # a list of names
    apt-get install -y -qq --no-install-recommends $packages >/dev/null
    for service in redis-server memcached postgresql; do
        case " $packages " in
        *" $service "*)
            # Nor at the next start of the system.
            have deb-systemd-helper && deb-systemd-helper disable $service.service >/dev/null 2>&1 || true
            ;;
        esac
    done
    required=
    optional=
    packages=
    have cc || required="$required cc"
    have cargo || required="$required cargo"
fi

how="install with your system's package manager:$required$optional"
if [ -n "$packages" ] && have apt-get; then how="as root: apt-get install$packages"; fi
case " $required " in
*" cargo "*) how="$how; Rust comes with rustup, rust-toolchain.toml names the version" ;;
esac

if [ -n "$required" ]; then
    echo "setup: missing:$required$optional; $how" >&2
    exit 1
fi
if [ -n "$optional" ]; then
    echo "setup: missing:$optional; $how; going on, the tests that need them are skipped" >&2
fi

# What scripts/demo, scripts/test, scripts/test_wheel, scripts/release and .ci/run share. Sourced, not run.

# They start a thousand Pythons, and each would compile what it imports again where the environment says to keep no bytecode.
unset PYTHONDONTWRITEBYTECODE

fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

say() {
  if [ -t 1 ]; then printf '\n\033[1m== %s\033[0m\n' "$*"; else printf '\n== %s\n' "$*"; fi
}

# The first Python on the PATH that is new enough and can make virtual environments.
find_python() {
  local name found=
  for name in ${PYTHON:-python3 python python3.14 python3.13 python3.12 python3.11}; do
    command -v "$name" >/dev/null || continue
    "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    found=$name
    if "$name" -c 'import ensurepip, venv' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
  [ -z "$found" ] || fail "$found has no venv module. On Debian or Ubuntu: apt install python3-venv"
  fail "needs Python 3.11 or newer, and found none. On Debian or Ubuntu: apt install python3 python3-venv"
}

# Each Python from 3.11 on that this machine has, on the PATH or by pyenv, as lines "VERSION PATH" such as
# "3.12 /usr/bin/python3.12": the latest of each version, no previews, no free-threaded ones.
all_pythons() {
  local folder path
  local -a folders
  IFS=: read -ra folders <<<"$PATH"
  if command -v pyenv >/dev/null; then folders+=("$(pyenv root)"/versions/*/bin); fi
  for folder in "${folders[@]}"; do
    for path in "$folder"/python3 "$folder"/python3.[0-9] "$folder"/python3.[0-9][0-9]; do
      # A shim of pyenv fails for versions that are not enabled; those are in the folders above.
      [ -x "$path" ] && "$path" -c '
import sys, sysconfig
if sys.version_info >= (3, 11) and sys.version_info[3] == "final" and not sysconfig.get_config_var("Py_GIL_DISABLED"):
    print(*sys.version_info[:3], sys.base_prefix + "/bin/python%d.%d" % sys.version_info[:2])
' 2>/dev/null || true
    done
  done | sort -u -k1,1n -k2,2n -k3,3n | awk '{ found[$1 "." $2] = $4 } END { for (version in found) print version, found[version] }' |
    sort -t. -k2,2n
}

# pip_install VENV ARGUMENTS: by uv where the machine has it, which takes a tenth of pip's time; where uv fails, perhaps
# because it knows less of the network than pip's configuration says, by pip. Silent unless both fail.
pip_install() {
  local venv=$1 option
  local -a by_uv
  shift
  if command -v uv >/dev/null && uv --version >/dev/null 2>&1; then
    # It chooses from all places, as pip does, and not only from the first that has a package.
    by_uv=(uv pip install --python "$venv/bin/python" --index-strategy unsafe-best-match)
    while read -r option; do by_uv+=("$option"); done < <(pip_places "$venv")
    if run_silently "$venv/pip.log" "${by_uv[@]}" "$@"; then return; fi
  fi
  run_silently "$venv/pip.log" "$venv/bin/python" -m pip install --disable-pip-version-check "$@" || {
    tail -n 40 "$venv/pip.log" >&2
    fail "pip failed, see above; is there a network?"
  }
}

# run_silently LOG COMMAND: its output goes into LOG; at a terminal, one line says what it is doing.
run_silently() {
  local log=$1 pid began=$SECONDS
  shift
  : >"$log"  # read below, perhaps before the process in the background has opened it
  "$@" >"$log" 2>&1 &
  pid=$!
  while [ -t 1 ] && kill -0 "$pid" 2>/dev/null; do
    printf '\r\033[K  %d s  %.60s' $((SECONDS - began)) "$(tail -n 1 "$log")"
    sleep 0.3
  done
  [ ! -t 1 ] || printf '\r\033[K'
  wait "$pid"
}

# pip_places VENV: where pip looks for packages by its configuration and environment, which uv does not read, as options.
pip_places() {
  "$1/bin/python" -m pip config list 2>/dev/null | awk -F"='" '
    { name = $1; sub(/.*\./, "", name); sub(/.$/, "", $2); gsub(/\\n/, " ", $2) }
    name ~ /^(find-links|extra-index-url)$/ || name == "index-url" && !indexes++ {
      places = split($2, place, " "); for (i = 1; i <= places; i++) print "--" name "=" place[i]
    }'
}

# find_uv FOLDER CHECKOUT: uv on the PATH; where the machine has none, the one among CHECKOUT's release tools, which is
# installed into FOLDER.
find_uv() {
  if ! command -v uv >/dev/null || ! uv --version >/dev/null 2>&1; then
    say "uv, which installs a hundred packages in seconds, and can choose the oldest"
    "$(find_python)" -m venv "$1/tools"
    mkdir "$1/uv"
    sed -n '/^uv==/,/[^\\]$/p' "$2/scripts/release-tools.txt" >"$1/uv/uv.txt"
    install_pinned "$1/tools" "$1/uv/uv.txt"
    ln -s "$1/tools/bin/uv" "$1/uv/uv"
    PATH=$PATH:$1/uv
  fi
}

# make_venv FOLDER CHECKOUT EXTRAS [REQUIREMENTS]: a virtual environment with the checkout installed in editable mode, such
# as with EXTRAS "[test]", and what the file REQUIREMENTS lists. One that was made for the same files is used as it is.
# The native core is compiled in the checkout, again where its C or the flags have changed.
make_venv() {
  local venv=$1 checkout=$2 extras=$3 requirements=${4:-} mark python
  # The folder too: scripts in an environment name it, and break when it moves.
  mark="$(cat "$checkout/pyproject.toml" ${requirements:+"$requirements"} | cksum) $(cd "$checkout" && pwd)"
  if [ "$(cat "$venv/installed" 2>/dev/null)" != "$mark" ] || ! "$venv/bin/python" -c '' 2>/dev/null; then
    python=$(find_python)
    say "installing into $venv with $("$python" --version): about half a minute"
    rm -rf "$venv"
    "$python" -m venv "$venv"
    pip_install "$venv" ${requirements:+--requirement "$requirements"} --editable "$checkout$extras"
    echo "$mark" >"$venv/installed"
  fi
  "$venv/bin/python" "$checkout/reader/native/build.py"
}

# install_tools VENV CHECKOUT: what builds and checks a release, as its scripts/release-tools.txt pins it.
install_tools() { install_pinned "$1" "$2/scripts/release-tools.txt"; }

# install_pinned VENV FILE: what FILE lists, at these versions and with these hashes.
install_pinned() { pip_install "$1" --require-hashes --only-binary :all: --requirement "$2"; }

# build PYTHON VENV SOURCE FOLDER: the sdist of SOURCE and the wheels of that sdist, into FOLDER, by an environment VENV
# with the tools that SOURCE pins, hatchling too: an environment of its own would have the newest of the day. One wheel is
# pure; the others have the native core, one for each platform that this machine has a compiler for.
build() {
  local platform compiler
  "$1" -m venv "$2"
  install_tools "$2" "$3"
  "$2/bin/python" "$3/scripts/wheels.py" compilers >"$2/compilers"
  while read -r platform compiler; do
    RAWPACK_NATIVE_BUILD=$([ "$platform" = any ] && echo never || echo always) RAWPACK_NATIVE_PLATFORM=$platform CC=$compiler \
      "$2/bin/python" -m build --no-isolation --outdir "$4" "$3" </dev/null >"$2/build.log" 2>&1 ||
      { cat "$2/build.log" >&2; fail "the wheel for $platform could not be built"; }
  done < <(echo any; cat "$2/compilers")
  "$2/bin/python" "$3/scripts/wheels.py" check "$4" || fail "these wheels cannot be released"
  (cd "$4" && ls)
}

# Whether pip can install a wheel on this machine, by its name.
runs_here() {
  case $(basename "$1") in
    *-any.whl) true ;;
    *linux_*_"$(uname -m)".whl) [ "$(uname -s)" = Linux ] ;;
    *macosx_*_"$(uname -m)".whl) [ "$(uname -s)" = Darwin ] ;;
    *) false ;;
  esac
}

# smoke_test FOLDER WHEEL: in a clean environment in FOLDER, with nothing but the wheel, outside the checkout.
smoke_test() {
  local wheel=$2 smoke
  smoke=$(pwd)/.ci/smoke.py
  say "install $(basename "$wheel") into a clean environment"
  "$(find_python)" -m venv --clear "$1/venv"
  "$1/venv/bin/python" -m pip install --quiet "$wheel" || fail "pip could not install it, see above; is there a network?"
  say "smoke test, outside the checkout"
  (cd "$1" && PATH=$1/venv/bin:$PATH venv/bin/python -P "$smoke" "$wheel")
}

# Hands pip's settings of where packages come from on to uv; sourced, $venv is set.

pip_setting() { # name; what pip would take for it, from the environment or its files
  local variable="PIP_${1^^}"
  variable=${variable//-/_}
  if [ -n "${!variable:-}" ]; then echo "${!variable}"; return; fi
  "$venv/bin/pip" config get "install.$1" 2>/dev/null \
    || "$venv/bin/pip" config get "global.$1" 2>/dev/null || true
}

pip_settings_for_uv() { # uv reads no pip.conf; names of registries are passed on, never printed
  local index extra links cert
  index=$(pip_setting index-url) extra=$(pip_setting extra-index-url)
  links=$(pip_setting find-links) cert=$(pip_setting cert)
  [ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
  [ -z "$extra" ] || export UV_INDEX="${UV_INDEX:-$(echo $extra)}"
  [ -z "$links" ] || export UV_FIND_LINKS="${UV_FIND_LINKS:-$(echo $links | tr ' ' ',')}"
  [ -z "$cert" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$cert}"
  # As pip does: the best version of all indexes; the lock's hashes say which file that may be.
  export UV_INDEX_STRATEGY="${UV_INDEX_STRATEGY:-unsafe-best-match}"
  export UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT:-180}"
}

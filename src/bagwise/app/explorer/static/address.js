// The state of a page is its address: page, number of groups, filters.

/** Parameters of the address. */
export function parameters() {
  return new URLSearchParams(location.search);
}

/** The address of a page; the number of groups stays, and empty parameters are left out. */
export function address(path, given = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ n: parameters().get("n"), ...given })) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  return query.size ? `${path}?${query}` : path;
}

/** Show another address; `replace` stays in the same entry of the history. */
export function go(to, replace = false) {
  if (replace) history.replaceState(history.state, "", to);
  else history.pushState(null, "", to);
  window.dispatchEvent(new Event("navigate"));
}

/** The same page with some parameters changed; others stay. */
export function changed(given) {
  return address(location.pathname, { ...Object.fromEntries(parameters()), ...given });
}

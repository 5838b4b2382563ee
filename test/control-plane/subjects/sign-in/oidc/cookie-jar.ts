/** An answer to a browser that follows no redirect by itself. */
export interface Page {
  readonly url: string;
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

/** As much of a browser as a sign-in takes: it keeps cookies, by the host, and follows redirects when told to. */
export class CookieJar {
  readonly #cookies = new Map<string, Map<string, string>>();

  async open(url: string, options: RequestInit = {}): Promise<Page> {
    const cookies = this.of(url);
    const response = await fetch(url, {
      ...options,
      redirect: 'manual',
      headers: {
        cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; '),
        ...(options.headers as Record<string, string> | undefined),
      },
    });
    for (const line of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? [];
      if (/Max-Age=0|expires=Thu, 01 Jan 1970/i.test(line)) cookies.delete(name);
      else cookies.set(name, value);
    }
    return { url, status: response.status, headers: response.headers, text: await response.text() };
  }

  /** Opens an address and those to which it redirects, up to one that `isLast` names, which it does not open. */
  async follow(url: string, options: RequestInit = {}, isLast = (_url: string) => false): Promise<Page> {
    let page = await this.open(url, options);
    for (;;) {
      const location = page.headers.get('location');
      if (location === null) return page;
      const next = new URL(location, page.url).href;
      if (isLast(next)) return { ...page, url: next };
      page = await this.open(next);
    }
  }

  of(url: string): Map<string, string> {
    const { hostname } = new URL(url);
    const cookies = this.#cookies.get(hostname) ?? new Map<string, string>();
    this.#cookies.set(hostname, cookies);
    return cookies;
  }
}

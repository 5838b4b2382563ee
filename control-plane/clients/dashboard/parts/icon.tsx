/** Drawings on a square of 16, by what they stand for. */
const PATHS = {
  overview: 'M2 8h3l2-5 3 10 2-5h2',
  apis: 'M3 3h10v10H3zM3 7h10M7 7v6',
  customers: 'M8 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM3 14c0-3 2-4.5 5-4.5s5 1.5 5 4.5',
  roles: 'M3 4h10M3 8h10M3 12h6',
  webhooks: 'M5 11a3 3 0 1 1 2-5M11 5a3 3 0 1 1-1 6H6M8 4l3 5',
  fleet: 'M3 4h10v3H3zM3 9h10v3H3z',
  audit: 'M4 2h6l2 2v10H4zM6 7h4M6 10h4',
  rootKeys: 'M6 10a3 3 0 1 1 0-.1M8 8l5-5M11 5l2 2',
  reference: 'M3 3h4l1 1 1-1h4v9H9l-1 1-1-1H3z',
  find: 'M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.5 10.5L14 14',
  signOut: 'M7 3H3v10h4M10 5l3 3-3 3M13 8H6',
};

/** A small drawing beside a word that says the same. */
export function Icon({ of }: { of: keyof typeof PATHS }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[of]} />
    </svg>
  );
}

import { duration, type Outcome } from './outcome.ts';

const [WIDTH, LEFT, ROW, TOP] = [860, 60, 16, 44];

/** Draws a row for each revocation: how long the key was accepted, and when the call claimed that it is not. */
export function drawing(name: string, all: readonly Outcome[]): string {
  const longest = Math.max(
    1,
    ...all.flatMap(({ claimedMs = 0, lastAcceptedMs }) => [claimedMs, lastAcceptedMs]),
  );
  const x = (ms: number) => LEFT + ((WIDTH - LEFT - 70) * ms) / longest;
  const rows = all.map(({ claimedMs, lastAcceptedMs, falseComplete }, i) => {
    const y = TOP + i * ROW;
    const accepted = `<rect x="${LEFT}" y="${y}" width="${Math.max(1, x(lastAcceptedMs) - LEFT).toFixed(1)}" height="10" fill="${falseComplete > 0 ? '#c2410c' : '#2f7d4f'}"/>`;
    const claim =
      claimedMs === undefined
        ? ''
        : `<line x1="${x(claimedMs).toFixed(1)}" x2="${x(claimedMs).toFixed(1)}" y1="${y - 2}" y2="${y + 12}" stroke="#6b7280" stroke-width="2"/>`;
    return `<text x="${LEFT - 8}" y="${y + 9}" text-anchor="end">${i + 1}</text>${accepted}${claim}`;
  });
  const height = TOP + all.length * ROW + 30;
  const escaped = name.replace(/[&<>]/g, (char) => `&#${char.charCodeAt(0)};`);
  const legend = `bar: accepted after the call began; line: the call claims that it is over; red: accepted after the claim`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="system-ui, sans-serif" font-size="12" fill="#6b7280"><text x="0" y="14" font-weight="bold">${escaped}, 0 to ${duration(longest)}</text><text x="0" y="32">${legend}</text>${rows.join('')}</svg>\n`;
}

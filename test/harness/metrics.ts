/** The series that a process shows at `/metrics`, by name and labels as they are written there. */
async function seriesOf(adminAddress: string | undefined): Promise<[series: string, value: number][]> {
  const text = await (await fetch(`${adminAddress}/metrics`)).text();
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return lines.map((line) => {
    const end = line.lastIndexOf(' ');
    return [line.slice(0, end), Number(line.slice(end + 1))];
  });
}

/** The value of one series, such as `keyfence_shed_total` or `keyfence_writes_total{result="short"}`; throws where it is not shown. */
export async function metric(adminAddress: string | undefined, series: string): Promise<number> {
  const value = new Map(await seriesOf(adminAddress)).get(series);
  if (value === undefined) throw new Error(`no series ${series}`);
  return value;
}

/** The values of a metric by one of its labels. */
export async function metricBy(
  adminAddress: string | undefined,
  name: string,
  label: string,
): Promise<Record<string, number>> {
  const found = (await seriesOf(adminAddress)).filter(([series]) => series.startsWith(`${name}{`));
  return Object.fromEntries(
    found.map(([series, value]) => [new RegExp(`[{,]${label}="([^"]*)"`).exec(series)?.[1] ?? '', value]),
  );
}

/** The sum of all series of a metric with such labels. */
export async function metricSum(
  adminAddress: string | undefined,
  name: string,
  labels = '',
): Promise<number> {
  const found = (await seriesOf(adminAddress)).filter(
    ([series]) => (series === name || series.startsWith(`${name}{`)) && series.includes(labels),
  );
  if (found.length === 0) throw new Error(`no series of ${name}`);
  return found.reduce((sum, [, value]) => sum + value, 0);
}

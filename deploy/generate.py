"""Write the files of deploy/ that are made by code, or check that the committed ones are what the code says.

python -m deploy.generate            write them
python -m deploy.generate --check    exit 1 and name the files when the committed ones are stale
"""

import argparse
import sys
from pathlib import Path

from deploy.grafana.dashboard import dashboard_json
from deploy.prometheus.slo import slo_rules

DEPLOY = Path(__file__).resolve().parent


def generate() -> dict[str, str]:
    """Every generated file: path under deploy/ -> text."""
    return {
        "prometheus/rules/slo.yml": slo_rules(),
        "grafana/dashboards/recall-service.json": dashboard_json(),
    }


def stale_files(generated: dict[str, str], root: Path = DEPLOY) -> list[str]:
    """Names of files under `root` that are missing or differ from `generated`."""
    return sorted(
        name
        for name, text in generated.items()
        if not (root / name).is_file() or (root / name).read_text(encoding="utf-8") != text
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when files are stale")
    arguments = parser.parse_args()
    generated = generate()
    stale = stale_files(generated)
    if arguments.check and stale:
        sys.exit(f"stale under deploy/: {', '.join(stale)}; run `make deploy-files` and commit the result")
    for name in stale:
        (DEPLOY / name).write_text(generated[name], encoding="utf-8")


if __name__ == "__main__":
    main()

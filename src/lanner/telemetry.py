"""OpenTelemetry spans for a program's sends and receives: `lanner.telemetry.instrument()`.

Needs the extra `lanner[telemetry]`.
"""

try:
    from lanner.client.telemetry import context_of, instrument, uninstrument
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("opentelemetry"):
        raise
    raise ModuleNotFoundError(
        "lanner.telemetry needs OpenTelemetry: install it with `pip install 'lanner[telemetry]'`", name=error.name
    ) from None

__all__ = ["context_of", "instrument", "uninstrument"]

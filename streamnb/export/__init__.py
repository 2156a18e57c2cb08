"""A model for other languages: plain JSON, or Arrow tables; `docs/format.md` describes both."""

from streamnb.export.arrow_tables import export_arrow, to_arrow
from streamnb.export.plain import export_dict, export_json

__all__ = ["export_arrow", "export_dict", "export_json", "to_arrow"]

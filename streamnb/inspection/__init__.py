"""What a model can say of itself beyond posteriors; `group_view.GroupView` lists the questions."""

from streamnb.inspection import categorical, numeric, words  # noqa: F401 -- to be found by view_of
